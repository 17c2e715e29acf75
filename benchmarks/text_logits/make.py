"""Make the sets of logits: fine-tune encoders, fit linear heads to their embeddings, and ask a language model.

    python benchmarks/text_logits/make.py --data DATA --models MODELS

`MODELS` is a folder with the folders `minilm` and `mpnet` (all-MiniLM-L6-v2 and all-mpnet-base-v2) and the file
`smollm2.gguf` (SmolLM2-135M-Instruct, Q4_1); README.md says where to get them. The runs are those that `plan` lists,
in its order, or, with `--only`, those whose names match a pattern. Sets that `sets.csv` already has are not made
again, so an interrupted run goes on where it stopped.
"""

import argparse
import fnmatch
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from load import FOLDER, TABLE, Logits
from papers.data.newsgroups import strip_footers, strip_headers, strip_quotes
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    set_seed,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, build_loss, calibrate_model
from hf_focal.choices import label_scores
from hf_focal.utils.atomic_write import write_whole

# 1. The tasks: tables of texts with labels from 0 to K - 1.

SPLIT_SEED = 0  # of the validation rows cut from training data, and of the rows kept of a large split: for all runs
VALIDATION, TEST = 1500, 2000  # rows at most
MANY_CLASSES, ROWS_MANY_CLASSES = 50, 1100  # fewer rows in each split with at least so many classes
TOPICS = (
    *("atheism", "graphics", "Windows", "hardware", "Mac", "X", "sale"),
    *("cars", "motorcycles", "baseball", "hockey", "encryption", "electronics", "medicine"),
    *("space", "Christianity", "guns", "Middle", "politics", "religion"),
)
EMOTIONS = (
    *("admiration", "amusement", "anger", "annoyance", "approval", "caring", "confusion"),
    *("curiosity", "desire", "disappointment", "disapproval", "disgust", "embarrassment", "excitement"),
    *("fear", "gratitude", "grief", "joy", "love", "nervousness", "optimism"),
    *("pride", "realization", "relief", "remorse", "sadness", "surprise", "neutral"),
)
SHORT = ("mpqa", "tweet_irony", "custrev", "sst", "tweet_emotion", "sst5")  # the tasks that take the least time
MANY = ("newsgroups", "newsgroups_by_date", "goemotions", "banking77", "clinc150")  # and those of many classes
TASKS = (*SHORT, "tweet_offensive", "trec_qa", *MANY)
MAX_LENGTH = 64  # tokens of a text, or of a pair of texts
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read(data: Path, task: str) -> dict[str, pd.DataFrame]:
    """Return "train", "test", and, where the task has it, "validation", with columns text, label, and maybe pair."""

    def table(name: str, split: str) -> pd.DataFrame:
        return pd.read_parquet(data / name / f"{split}.parquet")

    if task in ("sst", "sst5"):
        column = {"sst": "label", "sst5": "label5"}[task]
        splits = {
            name: table("sst", file) for name, file in (("train", "train"), ("validation", "dev"), ("test", "test"))
        }
        splits = {name: rows.assign(label=rows[column]) for name, rows in splits.items()}
        return {name: rows[rows["label"] >= 0] for name, rows in splits.items()}  # -1: neutral
    if task in ("newsgroups", "newsgroups_by_date"):
        splits = {name: table("newsgroups", name) for name in ("train", "test")}
        strip = lambda text: strip_quotes(strip_footers(strip_headers(text)))  # noqa: E731
        splits = {name: rows.assign(text=rows["text"].map(strip)) for name, rows in splits.items()}
        if task == "newsgroups":  # the random split of the papers
            rows = pd.concat(splits.values(), ignore_index=True)
            rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))]
            splits = {"test": rows[:3999], "validation": rows[3999:4899], "train": rows[4899:]}
        return splits
    has_validation = task in ("tweet_emotion", "tweet_irony", "tweet_offensive", "trec_qa", "goemotions", "clinc150")
    splits = {name: table(task, name) for name in ("train", *["validation"] * has_validation, "test")}
    if task == "goemotions":  # texts with one label
        splits = {name: rows[rows["labels"].map(len) == 1] for name, rows in splits.items()}
        splits = {name: rows.assign(label=rows["labels"].map(lambda ids: ids[0])) for name, rows in splits.items()}
    if task == "trec_qa":
        splits = {name: rows.rename(columns={"question": "text", "answer": "pair"}) for name, rows in splits.items()}
    return splits


@cache
def splits_of(data: Path, task: str) -> tuple[dict[str, pd.DataFrame], int]:
    """Return the splits "train", "validation", and "test", shuffled, and the number of classes.

    Rows of "train" whose text is also in another split are removed.
    """
    splits, rng = read(data, task), np.random.default_rng(SPLIT_SEED)
    columns = ["text", *["pair"] * ("pair" in splits["train"]), "label"]
    splits = {name: rows[columns].iloc[rng.permutation(len(rows))] for name, rows in splits.items()}
    num_classes = int(splits["train"]["label"].max()) + 1
    if "validation" not in splits:
        rows = splits["train"]
        size = min(VALIDATION, len(rows) // 2)
        splits["validation"], splits["train"] = rows[:size], rows[size:]
    many = num_classes >= MANY_CLASSES
    for name, size in (("validation", VALIDATION), ("test", TEST)):
        splits[name] = splits[name][: ROWS_MANY_CLASSES if many else size]
        pairs = ["text", "pair"] if "pair" in columns else ["text"]
        seen = pd.MultiIndex.from_frame(splits[name][pairs])
        splits["train"] = splits["train"][~pd.MultiIndex.from_frame(splits["train"][pairs]).isin(seen)]
    return splits, num_classes


# 2. The runs.


@dataclass(frozen=True)
class Run:
    kind: str  # "fine_tuned", "lora", "probe" (a linear head on frozen embeddings), or "zero_shot"
    model: str
    task: str
    loss: str = ""
    samples: int = 0  # to train on
    epochs: int = 0
    seed: int = 0
    wrong_labels: float = 0.0  # the share of training labels that are replaced by another class
    ridge: float = 0.0  # of a probe's weights: times their sum of squares, added to the loss
    prompt: str = ""

    @property
    def name(self) -> str:
        loss = self.loss.replace(":", "_").replace("=", "")
        parts = [self.kind, self.model, self.task, self.prompt, loss]
        if self.kind != "zero_shot":
            parts += [f"{self.samples}x{self.epochs}", f"s{self.seed}"]
        if self.ridge:
            parts.append(f"ridge{self.ridge:g}")
        if self.wrong_labels:
            parts.append(f"wrong{100 * self.wrong_labels:.0f}")
        return "-".join(part for part in parts if part)


LOSSES = ("cross_entropy", "flsd53", "focal:gamma=1")
FEW = {"banking77": 1000, "clinc150": 1500}  # training samples where 500 are too few for the number of classes
SHIFTS = {"sst": ("custrev",), "custrev": ("sst",)}  # the test sets of other tasks with the same classes


def plan() -> Iterator[Run]:
    """List the runs. A stop at any point leaves each task with about the same runs."""

    def fine_tuned(
        tasks: Iterable[str], losses: Iterable[str], epochs: int, seed: int = 42, model: str = "minilm", **settings
    ) -> Iterator[Run]:
        for loss in losses:
            for task in tasks:
                values = {"samples": FEW.get(task, 500), "epochs": epochs, "seed": seed} | settings
                yield Run("fine_tuned", model, task, loss, **values)

    def asked(tasks: Iterable[str], prompt: str) -> Iterator[Run]:
        yield from (Run("zero_shot", "smollm2", task, prompt=prompt) for task in tasks if task in PROMPTS)

    others = TASKS[len(SHORT) :]
    yield from probes("minilm", TASKS)
    yield from fine_tuned(SHORT, LOSSES[:2], 5)
    yield from asked(SHORT, "plain")
    yield from asked(SHORT, "chat")
    yield from fine_tuned(others, LOSSES[:2], 5)
    yield from asked(others, "plain")
    yield from fine_tuned(("mpqa", "custrev", "tweet_irony"), LOSSES[:2], 20)
    yield from fine_tuned(("mpqa", "sst", "tweet_emotion"), LOSSES[:2], 5, wrong_labels=0.2)
    yield from fine_tuned(TASKS, LOSSES[2:], 5)
    yield from fine_tuned(("mpqa", "sst", "tweet_emotion", "sst5", "tweet_offensive"), LOSSES[:2], 3, samples=2000)
    yield from asked(others, "chat")
    for seed in (1, 2):
        yield from fine_tuned(SHORT, LOSSES[:2], 5, seed)
    for task in SHORT:
        yield from fine_tuned((task,), LOSSES[:2], 5, model="mpnet")
    yield from probes("mpnet", TASKS)
    for loss in ("focal:gamma=1", LOSSES[0]):
        yield from (
            Run("lora", "smollm2", task, loss, 300, 2, 42, prompt="plain") for task in ("sst", "tweet_emotion")
        )
    yield from (Run("zero_shot", "smollm2", task, prompt="plain") for task in SUM_PROMPTS)


def probes(model: str, tasks: Iterable[str]) -> Iterator[Run]:
    for task in tasks:
        ridge = 0.01 if task in MANY else 0.1
        run = Run("probe", model, task, LOSSES[0], FEW.get(task, 500), 200, 42, ridge=ridge)
        yield from (run, replace(run, loss=LOSSES[1]))
        if task not in FEW:  # whose logits take the most space
            yield from (replace(run, ridge=ridge / 10), replace(run, wrong_labels=0.2))  # the first is overconfident
        if task not in MANY:
            yield replace(run, loss=LOSSES[2])


# 3. Encoders: fine-tuning, and linear heads.

LogitsOf = Callable[[str, str], Tensor]  # of a task and split


def encode(rows: pd.DataFrame, tokenizer) -> list[dict]:
    pairs = rows["pair"].tolist() if "pair" in rows else None
    encoded = tokenizer(rows["text"].tolist(), pairs, truncation=True, max_length=MAX_LENGTH)
    return [{name: encoded[name][i] for name in encoded} for i in range(len(rows))]


@torch.no_grad()
def outputs_by_length(forward: Callable[[dict], Tensor], inputs: list[dict], collate, batch_size: int = 64) -> Tensor:
    """Return what `forward` makes of batches of similar lengths, in the order of `inputs`, float32."""
    order = np.argsort([len(row["input_ids"]) for row in inputs], kind="stable")
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    outputs = torch.cat([forward(collate([inputs[i] for i in batch]).to(DEVICE)).float().cpu() for batch in batches])
    return outputs[torch.from_numpy(order.argsort())]


def training_rows(data: Path, run: Run) -> pd.DataFrame:
    splits, num_classes = splits_of(data, run.task)
    rng = np.random.default_rng(run.seed)
    rows = splits["train"].iloc[rng.permutation(len(splits["train"]))[: run.samples]]
    labels = rows["label"].to_numpy(copy=True)
    wrong = rng.random(len(labels)) < run.wrong_labels
    labels[wrong] = (labels[wrong] + rng.integers(1, num_classes, wrong.sum())) % num_classes
    return rows.assign(label=labels)


def training_arguments(run: Run, **options) -> FocalTrainingArguments:
    """Return the arguments that all fine-tuning shares, with those of one kind of model in `options`."""
    return FocalTrainingArguments(
        output_dir="out/text_logits",
        loss=run.loss,
        seed=run.seed,
        num_train_epochs=run.epochs,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        max_grad_norm=1.0,
        bf16=True,  # the logits are computed in float32
        use_cpu=DEVICE == "cpu",
        train_sampling_strategy="group_by_length",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **options,
    )


def fine_tune(run: Run, data: Path, models: Path) -> LogitsOf:
    tokenizer = AutoTokenizer.from_pretrained(models / run.model)
    rows, (_, num_classes) = training_rows(data, run), splits_of(data, run.task)
    inputs = encode(rows, tokenizer)
    columns = {name: [row[name] for row in inputs] for name in inputs[0]} | {"labels": rows["label"].tolist()}
    args = training_arguments(
        run,
        learning_rate={"minilm": 2e-4, "mpnet": 1e-4}[run.model],
        weight_decay=0.01,
        per_device_train_batch_size=32,
        logging_strategy="no",
    )
    set_seed(run.seed)  # the head's initial weights
    model = AutoModelForSequenceClassification.from_pretrained(
        models / run.model, num_labels=num_classes, problem_type="single_label_classification", dtype=torch.float32
    )
    collate = DataCollatorWithPadding(tokenizer)
    train_dataset = Dataset.from_dict(columns)
    FocalTrainer(model, args, collate, train_dataset, processing_class=tokenizer).train()
    model.eval()

    def logits_of(task: str, split: str) -> Tensor:
        inputs = encode(splits_of(data, task)[0][split], tokenizer)
        return outputs_by_length(lambda batch: model(**batch).logits, inputs, collate)

    return logits_of


@cache
def embeddings(path: Path, data: Path, task: str, split: str, run: Run | None = None) -> Tensor:
    """Return the mean of the last hidden states of each text of a split, or of a run's training texts, (N, width)."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModel.from_pretrained(path, dtype=torch.float32).to(DEVICE).eval()

    def mean_state(batch: dict) -> Tensor:
        mask = batch["attention_mask"].unsqueeze(-1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = model(**batch).last_hidden_state
        return (states.float() * mask).sum(1) / mask.sum(1)

    rows = training_rows(data, run) if run else splits_of(data, task)[0][split]
    return outputs_by_length(mean_state, encode(rows, tokenizer), DataCollatorWithPadding(tokenizer))


def fit_probe(run: Run, data: Path, models: Path) -> LogitsOf:
    """Fit a linear head to frozen embeddings, each feature scaled to a standard deviation of 1."""
    states_of = partial(embeddings, models / run.model, data)
    states = states_of(run.task, "train", replace(run, loss="", epochs=0, wrong_labels=0.0, ridge=0.0))
    mean, deviation = states.mean(0), states.std(0)
    labels = torch.tensor(training_rows(data, run)["label"].to_numpy())
    head = torch.nn.Linear(states.shape[1], splits_of(data, run.task)[1])
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    loss = build_loss(run.loss)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, run.epochs)
    for _ in range(run.epochs):
        optimizer.zero_grad()
        (loss(head((states - mean) / deviation), labels) + run.ridge * head.weight.square().sum()).backward()
        optimizer.step()
        schedule.step()
    head.requires_grad_(False)
    return lambda task, split: head((states_of(task, split) - mean) / deviation)


# 4. The language model: the logits of label words as the next token after the prompt.

SENTIMENT = ("negative", "positive")
YES_OR_NO = ("no", "yes")  # the labels 0 and 1
ROWS_ZERO_SHOT = 1000  # of each split
LABELED, ROWS_LORA = 200, 500  # held-out samples for the temperature in the head before LoRA; of each split after it
TRAINED_LAYERS = 10  # the last ones, of 30
ADAPTED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PROMPTS = {  # the words of the labels, the prompt that the word goes on, and the user's turn of the chat
    "tweet_emotion": (
        ("anger", "joy", "optimism", "sadness"),
        "Tweet: {text}\nThe emotion of this tweet (anger, joy, optimism, or sadness) is",
        "Which emotion does this tweet express: anger, joy, optimism, or sadness?\n\n{text}\n\nAnswer with one word.",
    ),
    "tweet_irony": (
        YES_OR_NO,
        "Tweet: {text}\nIs this tweet ironic, yes or no? Answer:",
        "Is this tweet ironic?\n\n{text}\n\nAnswer yes or no.",
    ),
    "tweet_offensive": (
        YES_OR_NO,
        "Tweet: {text}\nIs this tweet offensive, yes or no? Answer:",
        "Is this tweet offensive?\n\n{text}\n\nAnswer yes or no.",
    ),
    "sst": (
        SENTIMENT,
        "Review: {text}\nThe sentiment of this review is",
        "Is the sentiment of this film review negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "sst5": (
        ("terrible", "bad", "okay", "good", "great"),
        "Review: {text}\nIn one word, the film was",
        "Was the film terrible, bad, okay, good, or great, says this review?\n\n{text}\n\nAnswer with one word.",
    ),
    "custrev": (
        SENTIMENT,
        "Review: {text}\nThe sentiment of this review is",
        "Is the sentiment of this product review negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "mpqa": (
        SENTIMENT,
        'The sentiment of the phrase "{text}" is',
        "Is the sentiment of this phrase negative or positive?\n\n{text}\n\nAnswer with one word.",
    ),
    "trec_qa": (
        YES_OR_NO,
        "Question: {text}\nSentence: {pair}\nDoes the sentence answer the question, yes or no? Answer:",
        "Does the sentence answer the question?\n\nQuestion: {text}\nSentence: {pair}\n\nAnswer yes or no.",
    ),
    "newsgroups": (
        TOPICS,
        "Message: {text}\nThe topic of this message, in one word, is",
        f"Which is the topic of this message: {', '.join(TOPICS)}?\n\n{{text}}\n\nAnswer with one word.",
    ),
    "goemotions": (
        EMOTIONS,
        "Comment: {text}\nThe emotion of this comment, in one word, is",
        "Which emotion does this comment express?\n\n{text}\n\nAnswer with one word.",
    ),
}

ROWS_SUMS = {"validation": 100, "test": 200}  # of tasks whose labels have several tokens
SUM_PROMPTS = {  # the names of these tasks' labels go on
    "banking77": "Message to a bank: {text}\nThe customer's intent is:",
    "clinc150": "Message to an assistant: {text}\nThe user's intent is:",
}


@cache
def language_model(path: Path):
    source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**source, padding_side="left")
    return AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16).to(DEVICE).eval(), tokenizer


class Float32Head(torch.nn.Module):
    """The head of a language model in bfloat16, whose logits are computed in float32."""

    def __init__(self, head: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(head.weight.detach().float(), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        return torch.nn.functional.linear(states.float(), self.weight)


def label_sums(file: Path, data: Path, task: str, texts: list[str]) -> Tensor:
    """Return the sums of the log-probabilities of the tokens of a task's labels after its prompt with each text."""
    model, tokenizer = language_model(file)
    names = Dataset.from_parquet(str(data / task / "test.parquet")).features["label"].names
    labels = [name.replace("_", " ") for name in names]
    head, rows = model.get_output_embeddings(), [{"text": text} for text in texts]
    model.set_output_embeddings(Float32Head(head))
    try:
        return label_scores(model, tokenizer, rows, labels, SUM_PROMPTS[task], batch_size=100)
    finally:
        model.set_output_embeddings(head)


def ask_by_sums(run: Run, data: Path, models: Path) -> LogitsOf:
    """Score labels of several tokens, some of which have the same first token."""
    file = models / f"{run.model}.gguf"
    _, tokenizer = language_model(file)

    def logits_of(task: str, split: str) -> Tensor:
        texts = [shorten(tokenizer, text) for text in splits_of(data, task)[0][split]["text"][: ROWS_SUMS[split]]]
        order = np.argsort([-len(text) for text in texts], kind="stable")  # similar lengths together
        return label_sums(file, data, task, [texts[row] for row in order])[torch.from_numpy(order.argsort())]

    return logits_of


def shorten(tokenizer, text: str) -> str:
    encoded = tokenizer(" ".join(text.split()), add_special_tokens=False, truncation=True, max_length=MAX_LENGTH)
    return tokenizer.decode(encoded["input_ids"])


def ask(run: Run, data: Path, models: Path) -> LogitsOf:
    model, tokenizer = language_model(models / f"{run.model}.gguf")
    if run.task in SUM_PROMPTS:
        return ask_by_sums(run, data, models)
    words, plain, turn = PROMPTS[run.task]
    if run.prompt == "chat":  # the answer begins with the word, without a space
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": turn}], add_generation_prompt=True, tokenize=False
        )
    else:
        prompt, words = plain, [f" {word}" for word in words]
    first = [ids[0] for ids in tokenizer(list(words), add_special_tokens=False)["input_ids"]]
    if len(set(first)) < len(first):
        raise ValueError(f"the first tokens of the labels must all be different, got {words}")
    head = model.get_output_embeddings().weight[first].detach().float().cpu()

    def prompts(rows: pd.DataFrame) -> list[dict]:
        texts = [
            prompt.replace("{text}", "\0")
            .replace("{pair}", shorten(tokenizer, pair))
            .replace("\0", shorten(tokenizer, text))
            for text, pair in zip(rows["text"], rows.get("pair", [""] * len(rows)), strict=True)
        ]
        return [{"input_ids": ids} for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]

    def last_state(batch: dict) -> Tensor:
        return model.model(**batch, use_cache=False).last_hidden_state[:, -1]

    collate = DataCollatorWithPadding(tokenizer)

    def logits_of(task: str, split: str) -> Tensor:
        rows = splits_of(data, task)[0][split][:ROWS_ZERO_SHOT]
        return outputs_by_length(last_state, prompts(rows), collate, 16) @ head.T

    return logits_of


# 5. The language model, fine-tuned with LoRA from the zero-shot start.


def saved_language_model(path: Path) -> Path:
    """Return a folder with the model of a GGUF file, which Transformers can load, but not save."""
    folder = Path("out/text_logits") / path.stem
    if not folder.exists():
        source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
        loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        settings = loaded.config.to_dict()
        del settings["quantization_config"]  # the weights are dequantized
        model = AutoModelForCausalLM.from_config(type(loaded.config).from_dict(settings))
        model.load_state_dict(loaded.state_dict())
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
    return folder


def shorten_texts(tokenizer, rows: pd.DataFrame) -> pd.DataFrame:
    texts = {column: [shorten(tokenizer, text) for text in rows[column]] for column in {"text", "pair"} & {*rows}}
    return rows.assign(**texts)


def zero_shot_classifier(run: Run, data: Path, models: Path) -> Path:
    """Return a folder with the zero-shot classifier, with a temperature in its head."""
    folder = Path("out/text_logits") / f"classifier-{run.model}-{run.task}"
    if not folder.exists():
        words, prompt, _ = PROMPTS[run.task]
        language_model = saved_language_model(models / f"{run.model}.gguf")
        tokenizer = AutoTokenizer.from_pretrained(language_model)
        held_out = shorten_texts(tokenizer, splits_of(data, run.task)[0]["validation"][:LABELED])
        held_out = held_out.assign(label=[words[label] for label in held_out["label"]])
        Dataset.from_pandas(held_out, preserve_index=False).to_csv(f"{folder}.csv")
        options = {"labels": words, "prompt": prompt, "save_as": "classifier", "method": "temperature"}
        calibrate_model(language_model, f"{folder}.csv", output=folder, **options)
    return folder


def fine_tune_language_model(run: Run, data: Path, models: Path) -> LogitsOf:
    """Train LoRA and the head of the zero-shot classifier."""
    from peft import LoraConfig, get_peft_model

    folder = zero_shot_classifier(run, data, models)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32)

    def encoded(rows: pd.DataFrame) -> list[dict]:
        rows = shorten_texts(tokenizer, rows)
        columns = [column for column in ("text", "pair") if column in rows]
        prompts = [model.config.prompt.format(**texts) for texts in rows[columns].to_dict("records")]
        return [{"input_ids": ids} for ids in tokenizer(prompts)["input_ids"]]

    rows = training_rows(data, run)
    columns = {"input_ids": [row["input_ids"] for row in encoded(rows)], "labels": rows["label"].tolist()}
    args = training_arguments(run, learning_rate=5e-4, per_device_train_batch_size=16, logging_steps=10)
    set_seed(run.seed)
    last = range(model.config.num_hidden_layers)[-TRAINED_LAYERS:]
    adapter = LoraConfig(task_type="SEQ_CLS", r=8, target_modules=ADAPTED, layers_to_transform=[*last])
    model, collate = get_peft_model(model, adapter), DataCollatorWithPadding(tokenizer)
    train_dataset = Dataset.from_dict(columns)
    FocalTrainer(model, args, collate, train_dataset, processing_class=tokenizer).train()
    model.eval()

    def logits(batch: dict) -> Tensor:
        with torch.autocast(DEVICE, torch.bfloat16):
            return model(**batch).logits

    def logits_of(task: str, split: str) -> Tensor:
        return outputs_by_length(logits, encoded(splits_of(data, task)[0][split][:ROWS_LORA]), collate, 16)

    return logits_of


# 6. Making and recording the sets.

METHODS = {"fine_tuned": fine_tune, "probe": fit_probe, "zero_shot": ask, "lora": fine_tune_language_model}


def make(run: Run, data: Path, models: Path) -> None:
    started = time.time()
    parts = {"": (run.task, "validation"), run.task: (run.task, "test")}
    if run.kind != "zero_shot":
        parts |= {task: (task, "test") for task in SHIFTS.get(run.task, ())}
    logits_of = METHODS[run.kind](run, data, models)
    logits = {name: as_saved(logits_of(*part)) for name, part in parts.items()}
    labels = {
        name: splits_of(data, task)[0][split]["label"].to_numpy()[: len(logits[name])]
        for name, (task, split) in parts.items()
    }
    for task in list(parts)[1:]:
        shift = "" if task == run.task else task
        name = run.name + (f"-to_{shift}" if shift else "")
        saved = Logits(logits[""], labels[""].astype(np.uint8), logits[task], labels[task].astype(np.uint8))
        np.savez_compressed(FOLDER / "logits" / f"{name}.npz", **vars(saved))
        scores = {"test_error": (logits[task].argmax(1) != labels[task]).mean()}
        wide = torch.from_numpy(logits[task].astype(np.float64))
        scores["test_nll"] = float(cross_entropy(wide, torch.tensor(labels[task])))
        by_date = "by date" if run.task == "newsgroups_by_date" else ""
        record(
            {"name": name, **asdict(run), "classes": logits[task].shape[1], "validation_rows": len(labels[""])}
            | {"test_rows": len(labels[task]), "shift": shift or by_date}
            | {key: round(float(value), 5) for key, value in scores.items()}
        )
        print(f"{time.strftime('%H:%M:%S')} {name} {scores} {time.time() - started:.0f} s", flush=True)


def as_saved(logits: Tensor) -> np.ndarray:
    """Return float16 logits whose rows have a mean of 0, which no probability depends on."""
    return (logits - logits.mean(1, keepdim=True)).detach().numpy().astype(np.float16)


def made() -> list[dict]:
    return pd.read_csv(TABLE, keep_default_na=False).to_dict("records") if TABLE.exists() else []


def record(row: dict) -> None:
    rows = [other for other in made() if other["name"] != row["name"]] + [row]
    write_whole(TABLE, pd.DataFrame(rows).sort_values("name").to_csv(index=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--models", type=Path, required=True, help="the folder of the models")
    parser.add_argument("--only", default="*", help="a pattern of names of runs, such as 'zero_shot-*'")
    options = parser.parse_args()
    (FOLDER / "logits").mkdir(exist_ok=True)
    for run in plan():
        if fnmatch.fnmatch(run.name, options.only) and run.name not in {row["name"] for row in made()}:
            try:
                make(run, options.data.resolve(), options.models.resolve())
            except Exception as error:  # the other runs go on
                print(f"{run.name} failed: {error!r}", flush=True)


if __name__ == "__main__":
    main()
