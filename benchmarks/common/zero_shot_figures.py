"""The figures of zero-shot logits: their file, sizes of samples, and corrections."""

from benchmarks.common.figures import RESULTS

FIGURES = RESULTS / "zero_shot.json"
SIZES = (20, 50, 100, 200, 500)
TITLES = {
    "none": "no correction",
    "temperature": "T",
    "bias": "T and offsets (`bias`)",
    "auto": "`auto`",
    "prior": "batch calibration, no labels",
    "shares": "`match_shares` with the true shares, no labels",
    "contextual": "contextual calibration, no labels",
}
