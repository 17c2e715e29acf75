"""One pass for 100 temperatures and a vocabulary of 37,000, against a loop and the model's forward pass.

    python -m benchmarks.speed.token_calibration [--rounds 5] [--threads 1] [--json FILE]

The model is a randomly initialized Transformer-base as a Marian model, 6 + 6 layers of width 512, on sentences of 32
tokens. The calibrated logits are generated, with the tail of those of a trained model. Each round runs all of them in
turn. Ratios are medians of the ratios within each round: read these. The loop is timed on its first temperatures and
extrapolated. Peak memory excludes the logits.
"""

import os
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import MarianConfig, MarianMTModel

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import TokenErrors, TokenMemory, TokenTimes
from benchmarks.common.memory import peak_bytes
from benchmarks.common.timing import times_in_turn
from hf_focal.calibration import TemperatureStream
from hf_focal.calibration.temperature_grid import PAPER_GRID

VOCABULARY, LENGTH = 37_000, 32
LOOPED = 5  # number of temperatures that the loop is timed on


def base_model() -> MarianMTModel:
    """The base Transformer of the papers, with one vocabulary for both languages."""
    torch.manual_seed(0)
    sizes = {"encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
    sizes |= {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "max_position_embeddings": 512}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    return MarianMTModel(MarianConfig(vocab_size=VOCABULARY, decoder_vocab_size=VOCABULARY, **sizes, **ids)).eval()


def language_model_rows(num_rows: int) -> tuple[Tensor, Tensor]:
    """Logits with a Zipf distribution and some large values, overconfident by a temperature of 1.5."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(num_rows, VOCABULARY, generator=generator) - torch.arange(1, VOCABULARY + 1).log()
    raised = torch.randint(VOCABULARY, (num_rows, 4), generator=generator)
    logits.scatter_add_(1, raised, torch.rand(num_rows, 4, generator=generator) * torch.tensor([30.0, 12, 8, 6]))
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return 1.5 * logits, labels


def loop(
    logits: Tensor, labels: Tensor, temperatures: np.ndarray, num_bins: int = 15
) -> tuple[list[float], list[float]]:
    """ECE and NLL with a log_softmax for each temperature, in the dtype of the logits."""
    eces, nlls = [], []
    for temperature in temperatures.tolist():
        log_p = torch.log_softmax(logits / temperature, 1)
        top, predicted = log_p.max(1)
        confidence, correct = top.exp().double(), (predicted == labels).double()
        bins = (confidence * num_bins).ceil().long().sub(1).clamp(0, num_bins - 1)
        eces.append(float(torch.bincount(bins, confidence - correct, num_bins).abs().sum()) / len(labels))
        nlls.append(-float(log_p.gather(1, labels[:, None]).double().mean()))
    return eces, nlls


def time_results(rounds: int, sentences: int) -> TokenTimes:
    """Measure the milliseconds of forward pass, one pass and loop, and the median ratios of the rounds."""
    model = base_model()
    tokens = torch.randint(2, VOCABULARY, (sentences, LENGTH), generator=torch.Generator().manual_seed(0))
    logits, labels = language_model_rows(sentences * LENGTH)

    def forward() -> None:
        with torch.no_grad():
            model(input_ids=tokens, decoder_input_ids=tokens)

    runs: dict[str, Callable[[], Any]] = {
        "forward": forward,
        "one_pass": lambda: TemperatureStream().update(logits, labels),
        "loop": lambda: loop(logits, labels, PAPER_GRID[:: len(PAPER_GRID) // LOOPED]),
    }
    times = {name: run.wall for name, run in times_in_turn(runs, rounds).items()}
    times["loop"] = [seconds * len(PAPER_GRID) / LOOPED for seconds in times["loop"]]
    ratios = {
        name: [seconds / one_pass for seconds, one_pass in zip(times[name], times["one_pass"], strict=True)]
        for name in ("forward", "loop")
    }
    return {
        "sentences": sentences,
        "tokens": sentences * LENGTH,
        "forward_ms": 1000 * statistics.median(times["forward"]),
        "one_pass_ms": 1000 * statistics.median(times["one_pass"]),
        "loop_ms": 1000 * statistics.median(times["loop"]),
        "one_pass_of_forward": 1 / statistics.median(ratios["forward"]),
        "one_pass_of_forward_rounds": sorted(1 / ratio for ratio in ratios["forward"]),
        "loop_of_one_pass": statistics.median(ratios["loop"]),
        "loop_of_one_pass_rounds": sorted(ratios["loop"]),
        "tokens_per_second": sentences * LENGTH / statistics.median(times["one_pass"]),
    }


def memory_results() -> Iterator[TokenMemory]:
    """Measure the peak memory in MiB for increasing numbers of tokens, in batches and as one batch."""
    logits, labels = language_model_rows(2048)
    TemperatureStream().update(logits[:64], labels[:64])  # allocates the table of bins, 6 MiB, once
    for num_tokens in (128, 512, 2048):
        some = logits[:num_tokens], labels[:num_tokens]
        yield {
            "tokens": num_tokens,
            "logits_mib": num_tokens * VOCABULARY * 4 / 2**20,
            "batches_mib": peak_bytes(partial(update, TemperatureStream(), *some, 128)) / 2**20,
            "at_once_mib": peak_bytes(partial(update, TemperatureStream(), *some, num_tokens)) / 2**20,
        }


def update(stream: TemperatureStream, logits: Tensor, labels: Tensor, size: int) -> None:
    for batch in zip(logits.split(size), labels.split(size), strict=True):
        stream.update(*batch)


def accuracy_results(num_rows: int = 200) -> TokenErrors:
    """Return the largest differences from the loop in float64, and both optima."""
    logits, labels = language_model_rows(num_rows)
    stream = TemperatureStream()
    stream.update(logits, labels)
    curves = stream.compute()
    ece, nll = loop(logits.double(), labels, PAPER_GRID)
    return {
        "tokens": num_rows,
        "ece_difference": float(np.abs(curves.ece - ece).max()),
        "nll_difference": float(np.abs(curves.nll - nll).max()),
        "ours_T": stream.fit("ece").value,
        "loop_T": float(PAPER_GRID[np.argmin(ece)]),
    }


def main() -> None:
    options = parse_options(script_options(__doc__, rounds=5))
    facts = machine() | {"load_average_at_start": os.getloadavg()[0]}
    times = shown(time_results(options.rounds, sentences) for sentences in (4, 16))
    memory, (accuracy,) = shown(memory_results()), shown([accuracy_results()])
    write_figures(options.json, {"machine": facts, "times": times, "memory": memory, "accuracy": accuracy})


if __name__ == "__main__":
    main()
