"""Simulate `auto` on logits that are calibrated: how often it leaves them alone, and what NLL it adds if it does not.

    python -m benchmarks.studies.calibrated_logits --csv benchmarks/results/text_corrections/simulation.csv

Labels are drawn from the softmax of the logits, which are normal with a standard deviation of 1 or, in every other
draw, 3. The NLL added is that of a corrected softmax on 1,000 other logits, exact in their labels.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from hf_focal import fit_correction, fit_temperature

# Classes, samples, draws: more draws where a single one adds more.
CASES = [
    *((2, 50, 300), (2, 100, 200), (2, 1000, 60)),
    *((5, 50, 400), (5, 100, 200), (5, 1000, 40)),
    *((20, 50, 60), (20, 100, 60), (20, 1000, 20)),
    *((150, 50, 20), (150, 100, 20), (150, 1000, 10)),
]


def added_nll(corrected: Tensor, logits: Tensor) -> float:
    """Return the mean Kullback-Leibler divergence of the corrected softmax from that of logits (N, K)."""
    true = logits.log_softmax(1)
    return float((true.exp() * (true - corrected.log_softmax(1))).sum(1).mean())


def simulate(num_classes: int, size: int, draws: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(num_classes * 10_000 + size)
    alone, by_auto, by_temperature = 0, [], []
    for draw in range(draws):
        options: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
        logits = (1 + 2 * (draw % 2)) * torch.randn(size + 1000, num_classes, **options)
        labels = torch.multinomial(logits[:size].softmax(1), 1, generator=generator).squeeze(1)
        fit = fit_correction(logits[:size], labels)
        alone += fit.method == "none"
        by_auto.append(added_nll(fit.correction.apply(logits[size:]), logits[size:]))
        temperature = float(fit_temperature(logits[:size], labels, "nll"))
        by_temperature.append(added_nll(logits[size:] / temperature, logits[size:]))
    values = torch.tensor(by_auto, dtype=torch.float64)
    return {
        "classes": num_classes,
        "samples": size,
        "draws": draws,
        "left_alone": alone / draws,
        "added": float(values.mean()),
        "added_error": float(values.std() / draws**0.5),
        "added_by_temperature": sum(by_temperature) / draws,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, required=True, help="write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of temperatures at the end of their range
    rows = []
    for case in CASES:
        rows.append(simulate(*case))
        print(rows[-1], flush=True)
        pd.DataFrame(rows).to_csv(options.csv, index=False, float_format="%.5f")


if __name__ == "__main__":
    main()
