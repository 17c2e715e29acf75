"""Two labels as one logit: rerankers and judges, against their own computation."""

import json
import re
import shlex

import numpy as np
import pytest
import torch
from datasets import Dataset
from documented import ROOT
from label_word_models import PROMPT, label_tokenizer, language_model
from slow_variants import some_slow
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from hf_focal import Correction, InputError, calibrate_model, evaluate_model
from hf_focal.choices import label_scores, rank
from hf_focal.choices.label_words import LabelWords
from hf_focal.choices.label_words_model import LabelWordsModel
from hf_focal.choices.openai_requests import openai_requests, vllm_classifier
from hf_focal.choices.sequence_classifier import sequence_classifier
from hf_focal.cli.main import main

GUIDE = (ROOT / "docs" / "guides" / "language_model_classifier.md").read_text(encoding="utf-8")
(QWEN3,) = re.findall(r"```text\n(<\|im_start\|>system.*?\n)```", GUIDE, flags=re.DOTALL)
LABELS = ("no", "yes")
DOCUMENTS = ["a good film", "", "<Query>: {query} 你好 {}", "film\n\nfilm", " is very bad "]
# How the tokenizers of Qwen split a text before its words become tokens.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]


@pytest.fixture(scope="module")
def tokenizer():
    trained = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
    trained.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    trained.train_from_iterator([QWEN3] * 5 + ["yes no"] * 5, trainer)
    trained.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in _MARKS])
    return PreTrainedTokenizerFast(tokenizer_object=trained, pad_token="<|endoftext|>", eos_token="<|im_end|>")


@pytest.fixture(scope="module")
def reranker(tokenizer):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.3, "tie_word_embeddings": True}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **sizes, pad_token_id=None)).eval()


@torch.no_grad()
def official_scores(model, tokenizer, query: str, documents: list[str]) -> torch.Tensor:
    """What the model card of Qwen3-Reranker computes: three parts, tokenized by themselves, and padded on the left."""
    start, rest = QWEN3.removesuffix("\n").split("<Instruct>")
    end = rest.partition("{document}")[2]
    form = "<Instruct>" + rest.partition("{document}")[0] + "{document}"
    parts = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in (start, end)]
    bodies = tokenizer([form.replace("{query}", query).replace("{document}", document) for document in documents])
    ids = [parts[0] + body + parts[1] for body in bodies["input_ids"]]
    inputs = tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
    last = model(**inputs).logits[:, -1]
    pair = last[:, tokenizer.convert_tokens_to_ids(["no", "yes"])]
    return pair.log_softmax(1)[:, 1].exp()


def test_the_prompt_of_the_guide_gives_the_official_score_of_qwen3_reranker(reranker, tokenizer):
    prompt = QWEN3.removesuffix("\n")
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n") and prompt.startswith(
        "<|im_start|>system\n"
    )
    expected = official_scores(reranker, tokenizer, "which film", DOCUMENTS)
    rows = [{"query": "which film", "document": document} for document in DOCUMENTS]
    logits = label_scores(reranker, tokenizer, rows, LABELS, prompt, one_logit=True)
    assert logits.shape == (len(DOCUMENTS), 1) and float(expected.max() - expected.min()) > 0.01
    torch.testing.assert_close(logits[:, 0].sigmoid(), expected, rtol=0, atol=1e-5)
    ranked = rank(reranker, tokenizer, "which film", DOCUMENTS, prompt)
    assert [hit["corpus_id"] for hit in ranked] == expected.argsort(descending=True).tolist()
    assert [hit["score"] for hit in ranked] == pytest.approx(sorted(expected.tolist(), reverse=True), abs=1e-5)


def test_documents_are_ranked_by_corrected_probabilities(reranker, tokenizer):
    prompt, correction = QWEN3.removesuffix("\n"), Correction.platt(0.5, -1.0)
    plain = rank(reranker, tokenizer, "q", DOCUMENTS, prompt)
    corrected = rank(reranker, tokenizer, "q", DOCUMENTS, prompt, correction=correction, top_k=3, batch_size=2)
    assert [hit["corpus_id"] for hit in corrected] == [hit["corpus_id"] for hit in plain[:3]]
    logits = np.log([hit["score"] / (1 - hit["score"]) for hit in plain[:3]])
    expected = 1 / (1 + np.exp(-(0.5 * logits - 1)))
    assert [hit["score"] for hit in corrected] == pytest.approx(expected.tolist(), abs=1e-5)
    assert rank(reranker, tokenizer, "q", [], prompt) == []
    with pytest.raises(InputError, match=r"prompt must have \{query\} and \{document\}"):
        rank(reranker, tokenizer, "q", DOCUMENTS, PROMPT)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gemma2", "phi, whose head has a bias"])
def test_one_logit_is_kept_by_a_classifier_and_by_servers(name, tmp_path):
    words_tokenizer = label_tokenizer()
    model = language_model(name, words_tokenizer)
    words = LabelWords(words_tokenizer, LABELS, PROMPT, one_logit=True)
    scorer, texts = LabelWordsModel(model, words), ["a good film", ""]
    rows = [{"text": text} for text in texts]
    pair = label_scores(model, words_tokenizer, rows, LABELS, PROMPT).double()
    logits = label_scores(model, words_tokenizer, rows, LABELS, PROMPT, one_logit=True)
    torch.testing.assert_close(logits[:, 0].double(), pair[:, 1] - pair[:, 0], rtol=0, atol=1e-6)
    for correction in (Correction(), Correction.temperature(2.0), Correction.platt(0.5, -1.0)):
        expected = correction.apply(logits.double())[:, 0].sigmoid()
        classifier, rest = sequence_classifier(scorer, correction, [[text] for text in texts])
        classifier.save_pretrained(tmp_path)
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
        assert loaded.config.num_labels == 1 and loaded.config.id2label == {0: "yes"}
        assert loaded.config.problem_type == "multi_label_classification"
        filled = [loaded.config.prompt.format(text=text) for text in texts]
        with torch.no_grad():
            found = loaded(**words_tokenizer(filled, padding=True, return_tensors="pt")).logits
        found = rest.apply(found.double())[:, 0].sigmoid()
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        saved = openai_requests(words, correction, "model")
        z = pair @ torch.tensor(saved["A"], dtype=torch.float64).T + torch.tensor(saved["b"], dtype=torch.float64)
        torch.testing.assert_close(z.softmax(1)[:, 1], expected, rtol=0, atol=1e-6)
        assert saved["temperature"] is not None and saved["answer_request"] is not None
        if "phi" not in name:
            pooler = vllm_classifier(words, correction, model)["pooler_config"]
            found = ((pair[:, 1] - pair[:, 0] - pooler["logit_mean"]) / pooler["logit_sigma"]).sigmoid()
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def case(reranker, tokenizer, tmp_path_factory):
    """The reranker with files of pairs, whose labels follow its logits with slope ½ and intercept -1."""
    folder = tmp_path_factory.mktemp("reranker")
    for part in (reranker, tokenizer):
        part.save_pretrained(folder / "model")
    (folder / "prompt.txt").write_text(QWEN3, encoding="utf-8")
    random = np.random.default_rng(0)
    words = ["film", "good", "bad", "is", "which", "passage"]
    for name in ("held_out", "test"):
        texts = [[" ".join(random.choice(words, random.integers(1, 8))) for _ in range(150)] for _ in range(2)]
        rows = [{"query": query, "document": document} for query, document in zip(*texts, strict=True)]
        logits = label_scores(reranker, tokenizer, rows, LABELS, QWEN3.removesuffix("\n"), one_logit=True)[:, 0]
        scaled = 2 * (logits - logits.mean()) / logits.std()
        drawn = (random.random(150) < (0.5 * scaled - 1).sigmoid().numpy()).astype(int)
        columns = {"query": texts[0], "document": texts[1], "label": drawn.tolist()}
        Dataset.from_dict(columns).to_csv(folder / f"{name}.csv")
    return folder


OPTIONS = {"labels": "no,yes", "problem_type": "multi_label_classification"}


def test_calibration_of_a_reranker_gives_platt_scaling_and_thresholds(case, reranker, tokenizer, tmp_path):
    result = calibrate_model(
        case / "model",
        str(case / "held_out.csv"),
        test_dataset=str(case / "test.csv"),
        method="platt",
        recall=0.5,
        output=tmp_path / "out",
        prompt=f"@{case / 'prompt.txt'}",
        **OPTIONS,
    )
    assert result.post["nll"] < result.pre["nll"] and result.method == "platt"
    saved = json.loads((tmp_path / "out" / "correction.json").read_text(encoding="utf-8"))
    assert (saved["link"], saved["classes"]) == ("sigmoid", ["yes"]) and saved["label_words"]["one_logit"]
    assert set(saved["thresholds"]["values"]) == {"yes"}
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    assert "one_logit=True" in code and ".sigmoid()" in code
    code = code.replace('from_pretrained("model")', f"from_pretrained({str(case / 'model')!r})")
    namespace: dict = {}
    exec(code.replace('"correction.json"', repr(str(tmp_path / "out" / "correction.json"))), namespace)
    correction = Correction.load(tmp_path / "out" / "correction.json")
    text = "A text to classify."
    ranked = rank(reranker, tokenizer, text, [text], QWEN3.removesuffix("\n"), correction=correction)
    assert ranked[0]["score"] == pytest.approx(float(correction.apply(namespace["scores"]).sigmoid()), abs=1e-5)


@pytest.mark.parametrize("kind", some_slow(["names", "mapped", "grades", "bool"], quick=["grades"]))
def test_labels_may_be_names_numbers_or_grades(case, tmp_path, kind):
    rows, options = Dataset.from_csv(str(case / "test.csv")), {}
    labels = rows["label"][:]
    expected = evaluate_model(case / "model", str(case / "test.csv"), prompt=f"@{case / 'prompt.txt'}", **OPTIONS)
    if kind == "names":
        values: list = [LABELS[label].upper() for label in labels]
    elif kind == "mapped":
        values, options = (
            [("wrong", "right")[label] for label in labels],
            {"label_map": {"wrong": "no", "right": "yes"}},
        )
    elif kind == "grades":
        values, options = [label * 2 + 1 for label in labels], {"positive_from": 2.5}
    else:
        values = [bool(label) for label in labels]
    changed = rows.remove_columns("label").add_column("label", values)
    changed.to_parquet(tmp_path / "rows.parquet")
    found = evaluate_model(
        case / "model", str(tmp_path / "rows.parquet"), prompt=f"@{case / 'prompt.txt'}", **OPTIONS, **options
    )
    assert found.pre["nll"] == pytest.approx(expected.pre["nll"], abs=1e-6)


def test_the_command_saves_a_classifier_with_one_logit(case, tmp_path, capsys):
    (command,) = re.findall(r"```\nhf-focal (calibrate Qwen/Qwen3-Reranker.*?)```", GUIDE, flags=re.DOTALL)
    (tmp_path / "Qwen").mkdir()
    arguments = shlex.split(command.replace("\\\n", " "))
    (name,) = [argument for argument in arguments if argument.startswith("Qwen/")]
    replaced = {name: str(case / "model"), "@qwen3_reranker.txt": f"@{case / 'prompt.txt'}"}
    replaced |= {"held_out.csv": str(case / "held_out.csv"), "test.csv": str(case / "test.csv")}
    replaced |= {"calibrated": str(tmp_path / "calibrated")}
    arguments = [replaced.get(argument, argument) for argument in arguments]
    assert main([*arguments, "--save_as", "classifier", "--method", "platt"]) == 0
    capsys.readouterr()
    card = (tmp_path / "calibrated" / "README.md").read_text(encoding="utf-8")
    code = card.partition("## Use")[2].partition("```python\n")[2].partition("```")[0]
    exec(code.replace("your-username/calibrated", str(tmp_path / "calibrated")), {})
    (shown,) = re.findall(r"0\.\d+", capsys.readouterr().out)
    model, own = Qwen3ForCausalLM.from_pretrained(case / "model"), AutoTokenizer.from_pretrained(case / "model")
    text = dict.fromkeys(("query", "document"), "A text to classify.")
    logit = label_scores(model, own, [text], LABELS, QWEN3.removesuffix("\n"), one_logit=True)
    expected = Correction.load(tmp_path / "calibrated" / "correction.json").apply(logit).sigmoid()
    assert float(shown) == pytest.approx(float(expected), abs=1e-4)


def test_one_logit_needs_two_labels(case, tokenizer):
    with pytest.raises(InputError, match="labels must be two for one logit"):
        LabelWords(tokenizer, ["no", "yes", "passage"], PROMPT, one_logit=True)
    with pytest.raises(InputError, match="labels must be two for one logit"):
        evaluate_model(case / "model", str(case / "test.csv"), prompt=PROMPT, **OPTIONS | {"labels": "a,b,c"})
