"""The logits of finished image runs: those before T, which give the runs' own figures."""

import numpy as np
import pytest
from launched_images import recipe
from recipe_modules import flags, import_recipe

from hf_focal.metrics import adaptive_calibration_error, expected_calibration_error

saved_logits = import_recipe("image_logits")


def test_saved_logits_give_the_figures_of_the_runs_before_temperature(tmp_path):
    arguments = flags(
        {
            "output_dir": tmp_path,
            "model_name_or_path": "cifar_resnet8",
            "image_size": 8,
            "num_train_epochs": 1,
            "max_train_samples": 100,
            "learning_rate": 0.05,
            "use_cpu": "true",
            "disable_tqdm": "true",
        }
    )
    arguments += ["--compare", "focal:gamma=3"]
    (result,) = recipe.main(arguments)
    saved_logits.main(arguments)
    with np.load(tmp_path / "focal_gamma_3" / "logits.npz") as arrays:
        logits, labels = arrays["test_logits"], arrays["test_labels"]
        assert len(arrays["validation_logits"]) == len(arrays["validation_labels"]) == result.temperature.num_samples
    assert result.temperature.value != 1
    assert expected_calibration_error(logits, labels) == pytest.approx(result.pre["ece"], abs=1e-5)
    assert adaptive_calibration_error(logits, labels) == pytest.approx(result.pre["adaece"], abs=1e-5)
