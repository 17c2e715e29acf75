"""What a corrected model keeps of the settings of a CrossEncoder."""

import json

import pytest

from hf_focal.hub.cross_encoder_folder import copy_settings

MODULE = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.Transformer"}


def copied(folder, modules):
    source, target = folder / "model", folder / "corrected"
    source.mkdir(), target.mkdir()
    (source / "config_sentence_transformers.json").write_text('{"model_type": "CrossEncoder"}')
    (source / "modules.json").write_text(json.dumps(modules))
    copy_settings(str(source), target, one_logit=True)
    return sorted(path.name for path in target.iterdir())


def test_a_cross_encoder_keeps_its_settings(tmp_path):
    assert copied(tmp_path, [MODULE]) == ["config_sentence_transformers.json", "modules.json"]


@pytest.mark.parametrize("modules", [["Transformer"], [MODULE, 1], [None], [[]], {"path": ""}, "", [MODULE, MODULE]])
def test_other_modules_are_ignored(modules, tmp_path):
    assert copied(tmp_path, modules) == []
