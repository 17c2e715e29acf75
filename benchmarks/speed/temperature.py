"""Temperature fits against common implementations: the papers' loop over the grid, and a short LBFGS run.

    python -m benchmarks.speed.temperature [--rounds 3] [--threads 2] [--json FILE]

Times are medians of interleaved rounds, so that the load of the machine affects both alike: read the ratios.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import NllLine
from benchmarks.common.temperature_fits import compare_fits, grid_lines, lbfgs, newton, our_fit, scaled_logits

TRUE_TEMPERATURES = (0.05, 0.3, 1.7, 5.0, 20.0)


def nll_lines(rounds: int) -> Iterator[NllLine]:
    """Compare the NLL fit with LBFGS; `exact_T` is the fit in float64."""
    for temperature in TRUE_TEMPERATURES:
        samples = scaled_logits(10_000, 10, temperature)
        times = compare_fits(partial(our_fit, "nll", *samples), partial(lbfgs, *samples), rounds)
        yield {"true_T": temperature, "exact_T": newton(*samples), **times}


def main() -> None:
    options = parse_options(script_options(__doc__, rounds=3))
    grid, nll = shown(grid_lines(options.rounds)), shown(nll_lines(options.rounds))
    write_figures(options.json, {"machine": machine(), "grid": grid, "nll": nll})


if __name__ == "__main__":
    main()
