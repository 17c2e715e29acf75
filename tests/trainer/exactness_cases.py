"""Trainings whose steps are cut into micro-batches and processes in many ways, and the plain loop that they equal.

Run as a script it trains the cases of as many processes as it is started with, and evaluates; each process writes its
own JSON.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import tiny_models
import torch
from datasets import Dataset
from papers.runs.class_weights_callback import ClassWeightsCallback, class_weight_history
from processes import leave
from tiny_models import NUM_LABELS, BagOfWords, Stream, logged, rows, sgd_step, tiny_bert, untimed, weights
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForQuestionAnswering, PrinterCallback, TrainerCallback

from hf_focal import FocalTrainer, build_loss
from hf_focal.losses import ClassBalanced
from hf_focal.trainer import accumulators, gamma_history

ROW_LOSSES = (
    "cross_entropy",
    "label_smoothing:alpha=0.1",
    "label_smoothing:alpha=0.1,convention=paper",
    "brier",
    "focal:gamma=3",
    "focal:schedule=5/3/2",
    "flsd53",
    "flsd532",
    "flsd:thresholds=0.4,gammas=2/1",
    "inverse_focal:gamma=2",
    "dual_focal:gamma=2",
    "adafocal:bins=3",
    "recall:ema=0.3,gamma=1",
    "class_balanced:beta=0.9",
)
# Rows of a micro-batch, micro-batches of a step, processes: a step has 8 rows in each.
SPLITS = ((8, 1, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2), (1, 4, 2))
TWO_SPLITS = ((2, 4, 1), (2, 2, 2))


@dataclass(frozen=True)
class Case:
    """One training, over the rows in order unless `options` say otherwise. Its repr is its name.

    Attributes:
        split: rows of a process's micro-batch, micro-batches of a step, processes.
        labels: one for a row ("classes"), one for a token or -100 ("tokens"), a distribution ("soft"), a distribution
            or a class ("mixed"), or 0, 1 or NaN for each of four labels ("several").
        data: what the rows come in: "list", "dataset" (`datasets.Dataset`), "stream", "sized stream", "ragged", a list
            of rows of 1 to 6 tokens, or "own sampler", a list of which a sampler deals out 5 rows twice.
        model: "plain", "float32", "bert", "batch norm" or "dropout".
        serves: whether AdaFocal measures the evaluation set, so that its evaluation serves the update.
        options: further training arguments.
    """

    loss: str
    split: tuple[int, int, int]
    labels: str = "classes"
    num_rows: int = 21
    data: str = "list"
    model: str = "plain"
    serves: bool = False
    options: dict = field(default_factory=dict)

    @property
    def rows_of_batch(self) -> int:
        """Rows of a micro-batch of all processes."""
        split_batches = self.options.get("accelerator_config", {}).get("split_batches", False)
        return self.split[0] * (1 if split_batches else self.split[2])

    @property
    def rows_of_step(self) -> int:
        return self.rows_of_batch * self.split[1]

    @property
    def reduction(self) -> str:
        return self.options.get("loss_reduction", "mean")

    @property
    def learning_rate(self) -> float:
        return 0.5 if self.reduction == "mean" else 0.05


def case(loss: str, split: tuple[int, int, int], labels: str = "classes", num_rows: int = 21, **options) -> Case:
    fields = {name: options.pop(name) for name in ("data", "model", "serves") if name in options}
    return Case(loss, split, labels, num_rows, **fields, options=options)


def _loader(split: tuple[int, int, int], num_rows: int = 21, config: dict | None = None, **options) -> Case:
    options |= {} if config is None else {"accelerator_config": config}
    return case("flsd53", split, "tokens" if split == (2, 2, 2) else "classes", num_rows, **options)


CASES: dict[str, list[Case]] = {
    # Every loss is split over micro-batches and over processes; one loss in every way. Of 21 rows, the last
    # accumulation of an epoch is incomplete, and so is its last batch.
    "losses": [
        case(loss, split, labels) for loss in ROW_LOSSES for labels in ("classes", "tokens") for split in TWO_SPLITS
    ],
    "splits": [
        case("flsd53", split, labels, num_rows)
        for labels in ("classes", "tokens")
        for split in SPLITS
        for num_rows in (24, 21)
        if num_rows == 24 or split not in TWO_SPLITS
    ],
    "sums": [
        case(loss, split, labels, loss_reduction="sum")
        for loss, labels in (
            ("flsd53", "classes"),
            ("adafocal:bins=3", "tokens"),
            ("class_balanced:beta=0.9", "classes"),
        )
        for split in TWO_SPLITS
    ],
    "soft targets": [case(loss, split, "soft") for loss in ("cross_entropy", "focal:gamma=2") for split in TWO_SPLITS],
    # As by mixup in some batches: micro-batches of distributions and of classes are in one step, and in one batch.
    "mixed targets": [
        case(loss, split, "mixed", num_rows, num_train_epochs=2, loss_reduction=reduction)
        for loss, num_rows, reduction in (("cross_entropy", 21, "mean"), ("focal:gamma=2", 13, "sum"))
        for split in ((2, 1, 1), (2, 2, 1), (2, 4, 1), (2, 1, 2), (2, 2, 2))
    ],
    "several labels": [case("focal:gamma=2,alpha=0.25", split, "several") for split in TWO_SPLITS],
    "BERT": [case("flsd53", split, model="bert") for split in TWO_SPLITS],
    # In the last batch of all processes one has a row or none of its own, or nobody has a whole batch; two epochs.
    "repeats": [
        case("adafocal:bins=3", split, labels, num_rows, num_train_epochs=2, loss_reduction=reduction)
        for split, labels, reduction in (((4, 1, 2), "classes", "mean"), ((2, 2, 2), "tokens", "sum"))
        for num_rows in (13, 11, 3, 1)
    ],
    "loaders": [
        _loader((2, 4, 1), dataloader_drop_last=True),
        _loader((2, 2, 2), dataloader_drop_last=True),
        _loader((4, 2, 2), 23, {"split_batches": True}),
        _loader((4, 1, 2), 17, {"split_batches": True}),
        _loader((4, 1, 2), config={"dispatch_batches": True}),
        _loader((2, 2, 2), config={"dispatch_batches": True, "split_batches": True}),
        _loader((4, 1, 2), data="dataset"),
        _loader((2, 2, 2), config={"dispatch_batches": False}, data="sized stream"),
        _loader((4, 1, 2), 19, data="own sampler"),
        _loader((2, 2, 2), data="own sampler"),
        _loader((2, 2, 2), config={"dispatch_batches": True}, data="own sampler"),
    ],
    # Trainer takes no step where a stream ends in the middle of an accumulation, and hands its loader no `drop_last`.
    "streams": [
        _loader((4, 1, 1), data="stream", max_steps=9),
        _loader((4, 1, 2), 13, data="stream", max_steps=5),
        _loader((2, 1, 2), 13, data="stream", max_steps=5),
        _loader((2, 4, 1), data="stream", max_steps=5),
        _loader((2, 2, 2), 11, data="stream", max_steps=5),
        _loader((4, 1, 2), data="stream", max_steps=5, dataloader_drop_last=True),
    ],
    "by length": [
        case("flsd53", split, data="ragged", train_sampling_strategy="group_by_length", num_train_epochs=2)
        for split in ((8, 1, 1), (2, 2, 1), (2, 2, 2), (4, 1, 2))
    ],
    "shuffled": [
        case("flsd53", split, train_sampling_strategy="random", num_train_epochs=2)
        for split in ((8, 1, 1), (2, 2, 2), (4, 1, 2))
    ],
    "logging": [
        case("adafocal:bins=3", split, num_rows=num_rows, num_train_epochs=2, **logging)
        for split, num_rows in zip(TWO_SPLITS, (24, 13), strict=True)
        for logging in (
            {"logging_steps": 5},
            {"logging_steps": 3, "logging_first_step": True},
            {"logging_strategy": "epoch"},
            {"logging_strategy": "no"},
        )
    ],
    "float32": [case("flsd53", split, "tokens", model="float32") for split in TWO_SPLITS],
    "a pass, an evaluation": [
        case("adafocal:bins=3", (2, 2, 2), serves=serves, eval_strategy="steps", eval_steps=1)
        for serves in (False, True)
    ],
    "without averaging": [
        case("flsd53", split, labels, average_tokens_across_devices=False)
        for split, labels in (((4, 1, 2), "classes"), ((2, 2, 2), "tokens"))
    ],
    # Of the micro-batches of all processes, which are the step. Of 11 rows the last step has none for one process.
    "recall": [
        case(loss, split, labels, num_rows)
        for loss, labels, num_rows in (
            ("recall", "classes", 24),
            ("recall", "classes", 13),
            ("recall", "tokens", 11),
            ("recall:gamma=2", "classes", 11),
        )
        for split in ((8, 1, 1), (4, 1, 2))
    ],
    "recall, accumulated": [case("recall", (2, 2, 2))],
    "MMCE": [
        case(loss, split, labels)
        for loss, labels in (("mmce:lam=2", "classes"), ("mmce:lam=2,weighted=true", "tokens"))
        for split in TWO_SPLITS
    ],
    "MMCE, gathered": [
        case(f"{loss},gather=true", split, labels)
        for loss, labels in (("mmce:lam=2", "tokens"), ("mmce:lam=2,weighted=true", "classes"))
        for split in ((4, 1, 2), (2, 2, 2))
    ],
    "batch norm": [case("flsd53", (2, 1, 2), num_rows=7, model="batch norm")],
    "dropout": [case("flsd53", split, model="dropout") for split in ((8, 1, 1), (2, 2, 2))],
    "rebalanced": [
        case("flsd53", (2, 2, 2), num_rows=num_rows, data="ragged", train_sampling_strategy="batch_rebalance")
        for num_rows in (24, 21, 17)
    ],
    "not dispatched": [
        _loader((4, 1, 2), num_rows, {"dispatch_batches": False}, data="stream", max_steps=3) for num_rows in (24, 21)
    ],
}


class TokenLogits(BagOfWords):
    """Logits for each token, of itself and the mean of its row."""

    def forward(self, input_ids, labels=None):
        embedded = self.embeddings(input_ids)
        return {"logits": self.classifier(torch.tanh(embedded + embedded.mean(1, keepdim=True)))}


class WithLayer(BagOfWords):
    """A bag of words whose rows go through another layer."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer.double()

    def forward(self, input_ids, labels=None):
        return {"logits": self.classifier(self.layer(self.embeddings(input_ids).mean(1)))}


class SizedStream(Stream):
    def __len__(self) -> int:
        return len(self.samples)


def samples_of(labels: str, count: int, seed: int = 0) -> list[dict]:
    """`count` rows. Tokens: rows have 0 to 6 labels, rows 2 and 3 and rows 12 to 15 none.

    So micro-batches of 2 rows have no label, and the second of two processes none in a whole step of 2 × 4 rows.
    """
    samples = rows(count, seed)
    for index, sample in enumerate(samples):
        ids = sample["input_ids"]
        if labels == "several":
            sample["labels"] = (ids[:NUM_LABELS] % 2).double()
            sample["labels"][index % NUM_LABELS] = torch.nan
        elif labels == "soft" or (labels == "mixed" and index % 4 < 2):
            sample["labels"] = torch.softmax(ids[:NUM_LABELS].double() / 8, 0)
            if labels == "mixed" and index in (4, 8, 9):  # left out
                sample["labels"] = torch.full_like(sample["labels"], -100)
        elif labels == "tokens":
            sample["labels"] = ids % NUM_LABELS
            sample["labels"][0 if index in (2, 3, 12, 13, 14, 15) else (3 + index * 5) % 7 :] = -100
    return samples


def training_set(case: Case) -> list[dict]:
    samples = samples_of(case.labels, case.num_rows)
    if case.data == "ragged":
        for index, sample in enumerate(samples):
            sample["input_ids"] = sample["input_ids"][: 1 + index * 5 % 6]
    return samples


def held_out(labels: str) -> list[dict]:
    return samples_of(labels, 33, seed=2)


def model_of(case: Case) -> nn.Module:
    if case.labels == "several":
        return tiny_bert(problem_type="multi_label_classification")
    if case.labels == "tokens":
        model = TokenLogits()
        return model.float() if case.model == "float32" else model
    kinds = {
        "bert": tiny_bert,
        "batch norm": lambda: WithLayer(nn.BatchNorm1d(8)),
        "dropout": lambda: WithLayer(nn.Dropout(0.2)),
    }
    return kinds.get(case.model, BagOfWords)()


class WeightsOfSteps(TrainerCallback):
    """The weights after each step."""

    def __init__(self):
        self.weights: list[list[float]] = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(weights(model).tolist())


class TrainerWithSampler(FocalTrainer):
    """Yields other samples than the dataset has."""

    def get_train_dataloader(self):
        sampler = dealt_out(len(self.train_dataset))
        return self.accelerator.prepare(
            DataLoader(self.train_dataset, self.args.train_batch_size, sampler=sampler, collate_fn=self.data_collator)
        )


def dealt_out(num_rows: int) -> list[int]:
    return [*range(num_rows), 3, 1, 4, 0, 5]


def trainer_of(case: Case, folder: Path, callback: TrainerCallback) -> FocalTrainer:
    batch_size, accumulation, num_processes = case.split
    kinds = {"dataset": Dataset.from_list, "stream": Stream, "sized stream": SizedStream}
    options = {
        "loss": case.loss,
        "learning_rate": case.learning_rate,
        "per_device_train_batch_size": batch_size,
        "gradient_accumulation_steps": accumulation,
        "train_sampling_strategy": "sequential",
        "train_dataset": kinds.get(case.data, list)(training_set(case)),
        "eval_dataset": held_out(case.labels) if case.serves else rows(9, seed=1),
        "calibration_dataset": None if case.serves else held_out(case.labels),
        "data_collator": padded if case.data == "ragged" or case.labels == "mixed" else None,
        "callbacks": [callback],
    }
    options |= {"gamma_update_steps": 1} if case.loss.startswith("adafocal") else {}
    trainer_class = TrainerWithSampler if case.data == "own sampler" else FocalTrainer
    trainer = tiny_models.trainer_of(folder, model_of(case), trainer_class, **options | case.options)
    assert trainer.args.world_size == num_processes, trainer.args.world_size
    trainer.remove_callback(PrinterCallback)
    if case in CASES["recall"]:
        trainer.add_callback(ClassWeightsCallback(trainer, every=1))
    return trainer


def train(case: Case, folder: Path) -> dict:
    """What came out of a training, as JSON values."""
    steps = WeightsOfSteps()
    trainer = trainer_of(case, folder, steps)
    trainer.train()
    history = trainer.state.log_history
    return {
        "weights": steps.weights,
        "losses": [[entry["step"], entry["loss"]] for entry in history if "loss" in entry],
        "train_loss": logged(trainer, "train_loss")[0],
        "gammas": [[*entry["gammas"], *entry["edges"]] for entry in gamma_history(history)],
        "class_weights": class_weight_history(history),
        "loss_state": dict(trainer.loss.state_dict()),
        "scheduled": logged(trainer, "gamma"),
        "orders": orders(trainer) if case in CASES["by length"] else None,
    }


def orders(trainer: FocalTrainer) -> list[list[int]]:
    """The indices of each epoch."""
    batches = trainer.get_train_dataloader().batch_sampler
    sampler = getattr(batches, "batch_sampler", batches).sampler
    actual = []
    for epoch in range(int(trainer.args.num_train_epochs)):
        sampler.set_epoch(epoch)
        actual.append(list(sampler))
    return actual


def batch_of(samples: list[dict]) -> tuple[Tensor, Tensor]:
    ids = [nn.functional.pad(sample["input_ids"], (0, 6 - len(sample["input_ids"]))) for sample in samples]
    labels = [torch.as_tensor(sample["labels"]) for sample in samples]
    if len({label.shape for label in labels}) > 1:  # distributions beside classes
        labels = [soft_target(sample["labels"]) for sample in samples]
    return torch.stack(ids), torch.stack(labels)


def soft_target(label: int | Tensor) -> Tensor:
    return label if isinstance(label, Tensor) else nn.functional.one_hot(torch.tensor(label), NUM_LABELS).double()


def padded(samples: list[dict]) -> dict[str, Tensor]:
    return dict(zip(("input_ids", "labels"), batch_of(samples), strict=True))


def steps_of(case: Case, orders: list[list[int]] | None = None) -> list[list[dict]]:
    """The rows of each step."""
    samples = training_set(case)
    if orders is None:
        end = len(samples)
        if case.options.get("dataloader_drop_last") and case.data != "stream":
            end -= end % case.rows_of_batch
        order = dealt_out(end) if case.data == "own sampler" else range(end)
        orders = [order] * case.options.get("num_train_epochs", 1)
    size, max_steps = case.rows_of_step, case.options.get("max_steps")
    steps = [
        [samples[index] for index in order[start : start + size]]
        for order in orders
        for start in range(0, len(order), size)
    ]
    return steps if max_steps is None else (steps * max_steps)[:max_steps]


def by_hand(
    case: Case,
    steps: list[list[dict]] | None = None,
    step_loss: Callable | None = None,
    forward: Callable | None = None,
) -> dict:
    """The plain loop: SGD, all rows of a step as one batch, AdaFocal's γ moved before each step but the first, an
    average of recall after each.

    Args:
        steps: the rows of each step, those of the case if not given.
        step_loss: (loss, logits, labels) -> the loss of a step, the loss's own mean or sum if not given.
        forward: (model, token ids) -> logits, of all rows at once if not given.
    """
    model, loss = model_of(case), build_loss(case.loss, "sigmoid" if case.labels == "several" else "softmax")
    steps = steps or steps_of(case)
    step_loss = step_loss or (lambda loss, logits, labels: loss(logits, labels, reduction=case.reduction))
    forward = forward or (lambda model, ids: model(input_ids=ids)["logits"])
    if isinstance(loss, ClassBalanced):
        labels = batch_of(training_set(case))[1].flatten()
        loss.set_class_counts([int((labels == label).sum()) for label in range(NUM_LABELS)])
    result = {"weights": [], "losses": [], "gammas": []}
    for step, samples in enumerate(steps):
        loss.set_progress(step / len(steps))
        if step and case.loss.startswith("adafocal"):
            ids, labels = batch_of(held_out(case.labels))
            with torch.no_grad():
                confidence, prediction = forward(model.eval(), ids).softmax(-1).max(-1)
            labeled = labels != -100
            loss.policy.update(confidence[labeled], (prediction == labels)[labeled])
            result["gammas"].append([*loss.policy.gammas, *loss.policy.edges])
        ids, labels = batch_of(samples)
        value = step_loss(loss, forward(model.train(), ids), labels)
        value.backward()
        loss.end_step()
        sgd_step(model, case.learning_rate)
        result["weights"].append(weights(model).tolist())
        result["losses"].append(value.item())
    return result | {"loss_state": dict(loss.state_dict())}


# Evaluation


def evaluate(folder: Path, num_processes: int) -> dict:
    """Metrics, temperature and predictions of sets whose last batches of 8 are uneven."""
    # 5 rows (one process has 1 of its own), 1 (one has none), and 3 rows in all.
    sets = {"21": rows(21, seed=1), "9": rows(9, seed=2), "3": rows(3, seed=3)}
    options = {"loss": "flsd53", "per_device_eval_batch_size": 8 // num_processes, "eval_dataset": sets}
    trainer = tiny_models.trainer_of(folder, **options)
    # Of two processes only the first has more than half of this.
    with patch.object(accumulators, "MAX_COLLECTED_BYTES", 20 * NUM_LABELS * 8):
        streamed = trainer.fit_temperature(sets["21"])
    assert trainer.fit.curves is not None
    return {
        "streamed": streamed.to_dict(),
        "temperature": trainer.fit_temperature(sets["21"]).to_dict(),
        "metrics": untimed(trainer.evaluate()),
        "logits": trainer.predict(sets["21"]).predictions.tolist(),
    }


def evaluate_labels(folder: Path, num_processes: int) -> dict:
    """Metrics of several labels per sample, after three steps of a model with parameters that logits do not use."""
    model = tiny_bert(problem_type="multi_label_classification")
    model.unused = nn.Linear(2, 2).double()
    options = {"train_sampling_strategy": "sequential", "max_steps": 3, "loss": "focal:gamma=2"}
    options |= {"per_device_train_batch_size": 8 // num_processes, "train_dataset": samples_of("several", 24)}
    trainer = tiny_models.trainer_of(folder, model, eval_dataset=held_out("several"), **options)
    trainer.train()
    temperature = trainer.fit_temperature()
    return untimed(trainer.evaluate()) | {"temperature": temperature.value}


def evaluate_few(folder: Path, num_processes: int) -> dict:
    """Metrics of answer spans and of tokens, where one of two processes has repeats only, or no labels."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    spans = BertForQuestionAnswering(BertConfig(vocab_size=30, max_position_embeddings=16, **sizes)).double()
    answers = [
        {"input_ids": row["input_ids"], "start_positions": row["labels"] % 3, "end_positions": row["labels"] + 1}
        for row in rows(9, seed=1)
    ]
    tokens = samples_of("tokens", 9)
    for index in (4, 5, 6, 7):  # of the second process
        tokens[index]["labels"] = torch.full_like(tokens[index]["labels"], -100)
    actual = {}
    for name, model, data in (("spans", spans, answers), ("tokens", TokenLogits(), tokens)):
        sets = {"9": data, "1": data[:1]}
        size = 8 // num_processes
        trainer = tiny_models.trainer_of(folder, model, eval_dataset=sets, per_device_eval_batch_size=size)
        actual[name] = untimed(trainer.evaluate()) | {"T": trainer.fit_temperature(sets["9"]).value}
    return actual


def results(num_processes: int, folder: Path) -> dict:
    """Of all cases of that many processes, by name, and of the evaluation."""
    cases = [case for group in CASES.values() for case in group if case.split[2] == num_processes]
    actual = {repr(case): train(case, folder) for case in cases}
    actual["evaluation"] = evaluate(folder, num_processes)
    actual["labels"] = evaluate_labels(folder, num_processes)
    actual["few"] = evaluate_few(folder, num_processes)
    return actual


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    measured = results(2, folder)
    (folder / f"{torch.distributed.get_rank()}.json").write_text(json.dumps(measured), encoding="utf-8")
    leave()
