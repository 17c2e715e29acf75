"""The runs that make the sets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from papers.data.text_tasks import TEXT_LOGIT_TASKS

from benchmarks.text_logits.prompts import PROMPTS, SUM_PROMPTS

SHORT = ("mpqa", "tweet_irony", "custrev", "sst", "tweet_emotion", "sst5")  # the tasks that take the least time
MANY = ("newsgroups", "newsgroups_by_date", "goemotions", "banking77", "clinc150")  # and those of many classes
TASKS = (*SHORT, "tweet_offensive", "trec_qa", *MANY)


@dataclass(frozen=True)
class Run:
    kind: Literal["fine_tuned", "lora", "probe", "zero_shot"]  # a probe is a linear head on frozen embeddings
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
SHIFTS = {"sst": ("custrev",), "custrev": ("sst",)}  # the test sets of other tasks with the same classes


def plan() -> Iterator[Run]:
    """List the runs. A stop at any point leaves each task with about the same runs."""

    def fine_tuned(
        tasks: Iterable[str],
        losses: Iterable[str],
        epochs: int,
        seed: int = 42,
        model: str = "minilm",
        **settings: Any,
    ) -> Iterator[Run]:
        for loss in losses:
            for task in tasks:
                values: dict[str, Any] = {
                    "samples": TEXT_LOGIT_TASKS[task].few,
                    "epochs": epochs,
                    "seed": seed,
                } | settings
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
        run = Run("probe", model, task, LOSSES[0], TEXT_LOGIT_TASKS[task].few, 200, 42, ridge=ridge)
        yield from (run, replace(run, loss=LOSSES[1]))
        if TEXT_LOGIT_TASKS[task].few == 500:  # the logits of more classes take the most space
            yield from (replace(run, ridge=ridge / 10), replace(run, wrong_labels=0.2))  # the first is overconfident
        if task not in MANY:
            yield replace(run, loss=LOSSES[2])
