"""The page of the SFT experiment."""

import json

from papers.pages import sft as page


def test_the_page_tells_mean_and_deviation_and_keeps_what_is_written_by_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "RUNS", tmp_path / "records.csv")
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
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
    page.PAGE.write_text("# By hand\n\n<!-- runs -->\nold\n<!-- /runs -->\n", encoding="utf-8")
    page.write_page()
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.startswith("# By hand\n\n") and "old" not in text
    assert "\n\n## 2,000 training sentences, 9 epochs\n\n| Loss |" in text
    assert "4 runs, 2.0 hours" in text and "seeds 1, 2" in text
    assert "| cross_entropy | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.500 ± 0.707 | 1.50 ± 0.71 | 1.50 ± 0.71 |" in text
