"""Draw the reliability diagrams of two guides from their runs: ``python -m papers.pages.guide_figures``."""

from hf_focal.calibration.calibration_fit import scaling_name
from hf_focal.reports import RunResult
from papers.pages.page import DOCS, RECORDS, draw_panels

GUIDES = DOCS.parent / "guides"


def write_page() -> None:
    calibrated = RunResult.load(RECORDS / "calibrate_existing" / "metrics.json")
    panels = {"as trained": calibrated.pre_bins, scaling_name(calibrated.method): calibrated.post_bins}
    draw_panels(panels, GUIDES / "calibrate_existing.png")
    usual, focal = (RunResult.load(RECORDS / "csv_to_hub" / f"{loss}.json") for loss in ("cross_entropy", "flsd53"))
    panels = {"cross-entropy": usual.pre_bins, "cross-ent., T": usual.post_bins, "FLSD-53, T": focal.post_bins}
    draw_panels(panels, GUIDES / "csv_to_hub.png")


if __name__ == "__main__":
    write_page()
