"""Configurations that were never run in full: each builds its network and takes a step on made-up data."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, Image
from papers.data.generated_topics import generate_topics
from papers.data.tokenizer_training import train_word_tokenizer
from papers.pages.records import record_of
from PIL import Image as PILImage
from recipe_modules import FOLDER, flags, import_recipe
from transformers import AutoModelForImageClassification, BertConfig, BertModel

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*T = ", "ignore:no T can be fitted")]
STEP = {
    "max_steps": 1,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 4,
    "dataloader_num_workers": 0,
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": "false",
    "use_cpu": "true",
    "disable_tqdm": "true",
}
# Configuration -> other arguments, and millions of parameters with ten classes.
IMAGES = {
    "cifar100/paper": ({}, 23.52),
    "tiny_imagenet/paper": ({"image_size": 32}, 23.58),
    "imagenet/resnet50": ({"image_size": 64, "model_name_or_path": "resnet110"}, 45.87),
    "places_lt/resnet152": ({"image_size": 64, "model_name_or_path": "resnet152"}, 58.16),
    "inaturalist/resnet50": ({"image_size": 64}, 23.53),
}


@pytest.mark.full
@pytest.mark.parametrize("config", IMAGES)
def test_an_image_config_takes_a_step(config, tmp_path):
    rng = np.random.default_rng(0)
    features = Features({"image": Image(), "label": ClassLabel(names=[str(i) for i in range(10)])})
    for name, count in (("train", 30), ("test", 10)):
        pixels = rng.integers(256, size=(count, 40, 40, 3), dtype=np.uint8)
        columns = {"image": [PILImage.fromarray(image) for image in pixels], "label": [i % 10 for i in range(count)]}
        Dataset.from_dict(columns, features=features).to_parquet(tmp_path / f"{name}.parquet")
    files = {"train_file": tmp_path / "train.parquet", "test_file": tmp_path / "test.parquet", "validation_size": 10}
    other, millions = IMAGES[config]
    options = {"config": FOLDER / "configs" / f"{config}.yaml", "output_dir": tmp_path / "out"} | files | STEP | other
    (result,) = import_recipe("image_classification").main(flags(options))
    assert result.pre["num_samples"] == 10 and np.isfinite(result.pre["nll"])
    saved = AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    assert saved.num_parameters() / 1e6 == pytest.approx(millions, abs=0.006)


def test_bert_takes_a_step_on_newsgroups(tmp_path):
    for number, (name, count) in enumerate((("train", 40), ("validation", 20), ("test", 20))):
        topics = generate_topics(count, seed=number)
        columns = {"text": topics["text"], "label": topics["label"]}
        Dataset.from_dict(columns).to_parquet(tmp_path / f"{name}.parquet")
    tokenizer = train_word_tokenizer(topics["text"], 200, 512)
    tokenizer.save_pretrained(tmp_path / "bert")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "bert")
    files = {f"{name}_file": tmp_path / f"{name}.parquet" for name in ("train", "validation", "test")}
    options = (
        {"config": FOLDER / "configs" / "newsgroups" / "bert.yaml", "output_dir": tmp_path / "out"} | files | STEP
    )
    (result,) = import_recipe("text_classification").main(flags(options | {"model_name_or_path": tmp_path / "bert"}))
    assert result.temperature.objective == "adaece"
    assert record_of(tmp_path / "out")["equal_mass"]["temperature"] == result.temperature.value
