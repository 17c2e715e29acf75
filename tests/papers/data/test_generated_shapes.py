"""Generated images of shapes with a class for each pixel."""

import io
import re

import numpy as np
import pytest
from papers.data.generated_shapes import SHAPE_NAMES, generate_shapes, write_shapes
from PIL import Image
from recipe_modules import FOLDER, flags, import_recipe

from hf_focal.reports import RunResult


def test_shapes_are_as_frequent_as_documented():
    masks = np.stack(
        [np.asarray(Image.open(io.BytesIO(mask["bytes"]))) for mask in generate_shapes(400, seed=1)["mask"]]
    )
    shares = np.bincount(masks.ravel(), minlength=len(SHAPE_NAMES)) / masks.size
    assert shares == pytest.approx([0.66, 0.2, 0.115, 0.0105, 0.0085, 0.006], rel=0.15)
    assert shares[0] / shares[-1] > 90
    assert masks.shape == (400, 64, 64)


@pytest.mark.slow
def test_a_segformer_is_trained_on_the_files(tmp_path, monkeypatch, capsys):
    write_shapes(tmp_path, (16, 6, 16))
    files = {f"{name}_file": tmp_path / f"{name}.parquet" for name in ("train", "validation", "test")}
    options = {"config": FOLDER / "configs" / "segmentation_demo.yaml", "model_name_or_path": tmp_path / "segformer"}
    options |= {"num_train_epochs": 1, "per_device_eval_batch_size": 8, "output_dir": tmp_path / "out"}
    argv = flags(options | files | {"use_cpu": "true", "loss": "recall"})
    monkeypatch.setattr("sys.argv", ["semantic_segmentation.py", *argv])
    import_recipe("../semantic_segmentation").main()
    result = RunResult.load(tmp_path / "out" / "report" / "metrics.json")
    assert result.pre["num_samples"] == 16 * 64 * 64 and result.pre["mean_iou"] == result.post["mean_iou"]
    printed = capsys.readouterr().out
    assert re.search(r"^background: IoU [\d.]+%, accuracy [\d.]+%$", printed, re.MULTILINE)
    assert all(f"\n{name}: IoU " in printed for name in SHAPE_NAMES)
