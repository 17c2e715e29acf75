"""The page of the SFT experiment."""

import json
import re

from papers.pages import sft as page
from written_pages import empty_copy


def test_the_page_tells_mean_and_deviation_and_keeps_what_is_written_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(page, "PAGE", empty_copy(page.PAGE, tmp_path))
    for loss in ("cross_entropy", "focal:gamma=1"):
        for seed in (1, 2):
            figures = {"num_samples": 1000, "error": 0.5, "nll": seed, "brier": 0.6, "ece": 0.01 * seed}
            run = {
                "loss": loss,
                "seed": seed,
                "temperature": 1.5,
                "cpu_seconds": 1800,
                "train_samples": 2000,
                "epochs": 9,
            }
            run |= dict.fromkeys(("train", "before", "after"), figures)
            folder = tmp_path / "out" / f"{loss.replace(':', '_')}_s{seed}"
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps(run))
    page.add_runs([tmp_path / "out"])
    page.write_page()
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.startswith("# Training a small language model\n\n")
    assert "\n\n## 2,000 training sentences, 9 epochs\n\n| Loss |" in text
    shown = re.sub("<!-- .*? -->", "", text)
    assert "The 4 runs took 2.0 hours on one core." in shown and "over the seeds 1, 2, on the\n" in shown
    assert "| cross_entropy | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.50 ± 0.71 | 1.50 ± 0.71 |" in text
