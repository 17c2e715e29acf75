"""The recipes for words, images, pixels, and translations, on checkpoints as the Hub has them."""

import json

import numpy as np
import pytest
from checkpoints import ENCODERS, SIZES, WORDS, save_encoder, save_tokenizer, save_vit
from datasets import Dataset, Image
from PIL import Image as PILImage
from running import run
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForSemanticSegmentation,
    AutoModelForSeq2SeqLM,
    AutoModelForTokenClassification,
    MarianConfig,
    MarianMTModel,
    SegformerConfig,
    SegformerImageProcessorPil,
    SegformerModel,
)

from hf_focal import FocalSeq2SeqTrainer, InputError


def metrics(folder):
    return json.loads((folder / "report" / "metrics.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODERS)
def test_words(monkeypatch, tmp_path, name):
    rng = np.random.default_rng(0)
    files = {}
    for part in ("train", "test"):
        words = [rng.choice(WORDS, rng.integers(1, 8)).tolist() for _ in range(30)]
        tags = [["ABCDE"[WORDS.index(word) % 5] for word in row] for row in words]
        files[f"{part}_file"] = str(tmp_path / f"{part}.jsonl")
        Dataset.from_dict({"tokens": [*words, ["  "]], "tags": [*tags, ["A"]]}).to_json(files[f"{part}_file"])
    folder = save_encoder(tmp_path / name, name)
    run(monkeypatch, "token_classification", model_name_or_path=folder, output_dir=tmp_path / "out", **files)
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == dict(enumerate("ABCDE"))
    assert "temperature" in model.config.calibration
    assert "macro_f1" in metrics(tmp_path / "out")["post"]


def pictures(folder):
    """Write a folder of images, of two sizes and modes, in three classes."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 8), ("test", 3)):
        for label in ("cat", "dog", "owl"):
            (folder / part / label).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 255, (20, 16 + number % 2, 3), np.uint8)
                image = PILImage.fromarray(pixels if number else pixels[..., 0])
                image.save(folder / part / label / f"{number}.png")
    return folder


@pytest.mark.slow
def test_images_and_losses(monkeypatch, tmp_path):
    options = {"dataset_name": pictures(tmp_path / "pictures"), "losses": "cross_entropy,flsd53"}
    folder = save_vit(tmp_path / "vit")
    run(monkeypatch, "image_classification", model_name_or_path=folder, output_dir=tmp_path / "out", **options)
    for loss in ("cross_entropy", "flsd53"):
        model = AutoModelForImageClassification.from_pretrained(tmp_path / "out" / loss)
        assert model.config.id2label == {0: "cat", 1: "dog", 2: "owl"}
        assert (tmp_path / "out" / loss / "preprocessor_config.json").is_file()
        assert metrics(tmp_path / "out" / loss)["pre"]["num_samples"] == 9


@pytest.mark.slow
def test_images_with_several_labels(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    files = {}
    for part in ("train", "test"):
        images = [PILImage.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)) for _ in range(20)]
        rows = {"image": images, "red": [i % 2 for i in range(20)], "blue": [i % 3 == 0 for i in range(20)]}
        files[f"{part}_file"] = str(tmp_path / f"{part}.parquet")
        Dataset.from_dict(rows).cast_column("image", Image()).to_parquet(files[f"{part}_file"])
    options = {"model_name_or_path": save_vit(tmp_path / "vit"), "label_column": "red,blue", **files}
    run(monkeypatch, "image_classification", output_dir=tmp_path / "out", **options)
    model = AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    assert model.config.problem_type == "multi_label_classification"


def masks(folder, classes):
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 12), ("test", 4)):
        images = [PILImage.fromarray(rng.integers(0, 255, (32, 40, 3), np.uint8)) for _ in range(count)]
        values = rng.integers(0, classes, (count, 32, 40)).astype(np.uint8)
        values[:, 0] = 255  # ignored
        rows = Dataset.from_dict({"image": images, "mask": [PILImage.fromarray(value) for value in values]})
        files[f"{part}_file"] = str(folder / f"{part}.parquet")
        rows.cast_column("image", Image()).cast_column("mask", Image()).to_parquet(files[f"{part}_file"])
    return files


@pytest.fixture(scope="module")
def segformer(tmp_path_factory):
    """A backbone without a head, as nvidia/mit-b0."""
    folder = tmp_path_factory.mktemp("models") / "segformer"
    sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 4, 8, 8], "num_attention_heads": [1, 1, 1, 1]}
    SegformerModel(SegformerConfig(decoder_hidden_size=8, **sizes)).save_pretrained(folder)
    SegformerImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_pixels(monkeypatch, tmp_path, segformer, capsys):
    options = {"class_names": "road,sky,tree", "model_name_or_path": segformer, "per_device_eval_batch_size": 2}
    run(monkeypatch, "semantic_segmentation", output_dir=tmp_path / "out", **options, **masks(tmp_path, 3))
    model = AutoModelForSemanticSegmentation.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {0: "road", 1: "sky", 2: "tree"}
    assert metrics(tmp_path / "out")["pre"]["num_samples"] == 4 * 32 * 32 - 4 * 32  # without the ignored row
    assert "mean_iou" in metrics(tmp_path / "out")["pre"]
    assert "sky: IoU " in capsys.readouterr().out


@pytest.mark.slow
def test_pixels_of_another_size(monkeypatch, tmp_path, segformer):
    options = {"class_names": "road,sky,tree", "model_name_or_path": segformer, "smallest_crop": 1}
    (tmp_path / "config.yaml").write_text("image_size: [64, 48]\n")
    options |= {"config": tmp_path / "config.yaml", "output_dir": tmp_path / "out"}
    run(monkeypatch, "semantic_segmentation", **options, **masks(tmp_path, 3))
    assert metrics(tmp_path / "out")["pre"]["num_samples"] == 4 * 64 * 48 - 4 * 2 * 48  # without the ignored row
    processor = AutoImageProcessor.from_pretrained(tmp_path / "out")
    assert dict(processor.size) == {"height": 64, "width": 48}


def test_a_wrong_size_is_one_error(monkeypatch, tmp_path, segformer):
    options = {"class_names": "road,sky", "model_name_or_path": segformer, "output_dir": tmp_path / "out"}
    with pytest.raises(InputError, match=r"image_size must be a height and a width of at least 1, got \[64\]"):
        run(monkeypatch, "semantic_segmentation", **options, **masks(tmp_path, 2), image_size=64)


def test_a_wrong_mask_is_found_before_training(monkeypatch, tmp_path, segformer):
    options = {"class_names": "road,sky", "model_name_or_path": segformer, "output_dir": tmp_path / "out"}
    with pytest.raises(InputError, match=r"mask_column must hold .* class numbers below 2 or 255, got 2 in row 0"):
        run(monkeypatch, "semantic_segmentation", **options, **masks(tmp_path, 3))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_translations(monkeypatch, tmp_path, capsys):
    searches, predict = [], FocalSeq2SeqTrainer.predict
    monkeypatch.setattr(
        FocalSeq2SeqTrainer, "predict", lambda *args, **search: searches.append(search) or predict(*args, **search)
    )
    tokenizer = save_tokenizer(tmp_path / "marian", eos_token="[SEP]", bos_token="[CLS]")
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    sizes = {
        "d_model": 8,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "max_position_embeddings": SIZES["hidden_size"] * 4,
    }
    ids = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    size = len(tokenizer)
    config = MarianConfig(vocab_size=size, decoder_vocab_size=size, bos_token_id=None, **ids, **layers, **sizes)
    MarianMTModel(config).save_pretrained(tmp_path / "marian")
    rng = np.random.default_rng(0)
    files = {}
    for part, count in (("train", 20), ("test", 6)):
        sides = [" ".join(rng.choice(WORDS, 4)) for _ in range(count)]
        rows = {"translation": [{"en": side, "de": side[::-1]} for side in sides]}
        files[f"{part}_file"] = str(tmp_path / f"{part}.jsonl")
        Dataset.from_dict(rows).to_json(files[f"{part}_file"])
    options = {"source_column": "en", "target_column": "de", "max_length": 12, "num_beams": 2, "validation_size": 5}
    options |= {"model_name_or_path": tmp_path / "marian", "output_dir": tmp_path / "out", **files}
    with pytest.raises(InputError, match=r"bleu_temperatures must be positive numbers, got -1.0"):
        run(monkeypatch, "translation", bleu_temperatures=-1, **options)
    run(monkeypatch, "translation", losses="cross_entropy,focal:gamma=1", bleu_temperatures=1, **options)
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out" / "focal_gamma_1")
    assert capsys.readouterr().out.count("BLEU = ") == 4
    # At T = 1, too, scores are normalized again where the model forbids tokens: only T differs.
    assert [search["renormalize_logits"] for search in searches] == [True] * 4
    assert ["logits_processor" in search for search in searches] == [False, True] * 2
    assert len((tmp_path / "out" / "cross_entropy" / "translations_T1.txt").read_text().split("\n")) == 6
