"""The text classification recipe from its command line to its report, on tiny networks."""

import csv
import json
import re
import shutil
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from files import strict_json
from matplotlib.image import imread
from papers.data.generated_topics import generate_topics
from papers.data.tokenizer_training import train_word_tokenizer
from recipe_modules import ON_CPU, REPORT, TINY_TEXTS, NoTrainer, flags, import_recipe
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    RobertaConfig,
    RobertaModel,
    TrainerCallback,
)

from hf_focal import FocalTrainer, LossConfig, Temperature
from hf_focal.reports import RunResult

pytestmark = pytest.mark.slow

recipe = import_recipe("text_classification")


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    training = {"dropout": 0, "num_train_epochs": 2, "eval_strategy": "epoch", "save_strategy": "epoch"}
    return recipe.main(flags({"output_dir": folder} | TINY_TEXTS | training | ON_CPU | options))


def write_csv(path, size, seed, before=""):
    """Write generated texts, with labels in words."""
    topics = generate_topics(size, seed=seed, num_topics=3)
    names = topics.features["label"].names
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["body", "topic"])
        writer.writerows(
            [before + text, names[label]] for text, label in zip(topics["text"], topics["label"], strict=True)
        )
    return path


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two losses compared, with what the first run's trainer predicted last: the logits of the test texts."""
    folder, predicted = tmp_path_factory.mktemp("compared"), []

    class Recording(FocalTrainer):
        def predict(self, *args, **kwargs):
            predicted.append(super().predict(*args, **kwargs))
            return predicted[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "FocalTrainer", Recording)
        results = run(folder, losses="cross_entropy,focal:gamma=3")
    logits = {"cross_entropy": predicted[1].predictions, "focal_gamma_3": predicted[-1].predictions}
    return SimpleNamespace(folder=folder, results=results, logits=logits)


def test_a_comparison_reports_every_run_and_all_of_them(compared):
    assert [result.loss for result in compared.results] == ["cross_entropy", "focal:gamma=3"]
    for result, name in zip(compared.results, ("cross_entropy", "focal_gamma_3"), strict=True):
        report = compared.folder / name / "report"
        assert {path.name for path in report.iterdir()} == REPORT | {"shots.md"}  # classes are small
        assert strict_json(report / "metrics.json")["pre"]["ece"] == result.pre["ece"]
        assert result.pre["num_samples"] == 120
        assert LossConfig.parse(str(report / "loss.yaml")) == LossConfig.parse(result.loss)
        assert imread(report / "reliability_before.png").std() > 0.1
        assert Temperature.load(compared.folder / name / "temperature.json") == result.temperature
    lines = (compared.folder / "report" / "table.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ")][2:4]  # after the titles
    assert [row.split(" | ")[0] for row in rows] == ["| cross_entropy", "| focal:gamma=3"]
    assert imread(compared.folder / "report" / "comparison.png").std() > 0.1


def test_the_saved_model_is_calibrated_for_everyone_who_loads_it(compared):
    name = "focal_gamma_3"
    model = AutoModelForSequenceClassification.from_pretrained(compared.folder / name).eval()
    tokenizer = AutoTokenizer.from_pretrained(compared.folder / name)
    result = RunResult.load(compared.folder / name / "report" / "metrics.json")
    test = recipe.load_data(recipe.TextDataArguments(num_generated=120, validation_size=60), seed=42)[0]["test"]
    batch = tokenizer(test["text"][:], truncation=True, max_length=40, padding=True, return_tensors="pt")
    with torch.no_grad():
        probabilities = model(**batch).logits.double().softmax(1)
    scaled = torch.from_numpy(compared.logits[name]).double() / result.temperature.value
    torch.testing.assert_close(probabilities, scaled.softmax(1), rtol=0, atol=1e-6)
    nll = -probabilities[torch.arange(120), test["labels"][:]].log().mean()
    assert nll.item() == pytest.approx(result.post["nll"], abs=1e-5)
    assert model.config.calibration["temperature"] == result.temperature.value
    assert model.config.id2label[3] == "topic 3"


def test_finished_runs_are_reused_and_others_refused(compared, monkeypatch, capsys):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    again = run(compared.folder, losses="cross_entropy,focal:gamma=3", logging_steps=7)
    assert [result.pre["ece"] for result in again] == [result.pre["ece"] for result in compared.results]
    assert "| focal:gamma=3 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"other settings \(learning_rate: 0.01 there, 0.1 now\)"):
        run(compared.folder, losses="cross_entropy", learning_rate=0.1)
    with pytest.raises(ValueError, match=r"other settings \(num_generated: 120 there, 130 now\)"):
        run(compared.folder, losses="cross_entropy", num_generated=130)
    with pytest.raises(ValueError, match=r"other settings \(adam_epsilon: 1e-08 there, 10.0 now\)"):
        run(compared.folder, losses="cross_entropy", adam_epsilon=10)


def test_a_finished_run_gets_another_temperature_without_training(compared, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(compared.folder / "focal_gamma_3", folder)
    trained_at = (folder / "checkpoint-8" / "trainer_state.json").stat().st_mtime_ns
    for objective in ("adaece", "ece"):
        (result,) = run(folder, loss="focal:gamma=3", temperature_objective=objective)
        assert result.temperature.objective == objective
    assert result.pre == pytest.approx(compared.results[1].pre, rel=0, abs=0, nan_ok=True)
    assert RunResult.load(folder / "report" / "metrics.json").temperature == result.temperature
    assert (folder / "checkpoint-8" / "trainer_state.json").stat().st_mtime_ns == trained_at


class Interrupt(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        raise KeyboardInterrupt


class InterruptedTrainer(FocalTrainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs, callbacks=[Interrupt()])


def test_an_interrupted_run_goes_on_where_it_was(compared, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "FocalTrainer", InterruptedTrainer)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, loss="focal:gamma=3")
    saved_at = (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns
    (tmp_path / "checkpoint-6").mkdir()  # half written
    assert not (tmp_path / "report").exists()
    (resumed,) = run(tmp_path, loss="focal:gamma=3")
    assert (tmp_path / "checkpoint-4" / "trainer_state.json").stat().st_mtime_ns == saved_at
    whole = compared.results[1]
    assert resumed.pre == pytest.approx(whole.pre, rel=0, abs=0, nan_ok=True)
    assert resumed.temperature == whole.temperature
    steps = [entry["step"] for entry in strict_json(tmp_path / "trainer_state.json")["log_history"]]
    assert steps == sorted(steps)
    assert steps[-1] == 8


def test_files_with_labels_in_words(tmp_path):
    files = {
        "train_file": write_csv(tmp_path / "train.csv", 90, 0),
        "test_file": write_csv(tmp_path / "test.csv", 50, 1),
    }
    options = files | {"text_column": "body", "label_column": "topic", "validation_size": 30, "num_train_epochs": 1}
    (result,) = run(tmp_path / "out", **options)
    assert result.pre["num_samples"] == 50
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.id2label == {0: "topic 0", 1: "topic 1", 2: "topic 2"}
    with pytest.raises(ValueError, match="test_file must be given"):
        run(tmp_path / "error", **options | {"test_file": None})
    for argument in ("test_file", "validation_file"):
        with pytest.raises(ValueError, match="train_file must be given with the other files, or else dataset_name"):
            run(tmp_path / "error", **{argument: files["test_file"]})
    assert not (tmp_path / "error").exists()
    write_csv(files["train_file"], 90, 2)
    with pytest.raises(ValueError, match=r"other settings \(content of train_file: '\w{64}' there, '\w{64}' now\)"):
        run(tmp_path / "out", **options)


def test_a_long_tail_is_cut_of_the_training_texts_alone():
    balanced, tailed = (
        recipe.load_data(recipe.TextDataArguments(num_generated=300, imbalance=imbalance), seed=0)[0]
        for imbalance in (None, 0.05)
    )
    before, counts = (np.bincount(splits["train"]["labels"][:]) for splits in (balanced, tailed))
    np.testing.assert_array_equal(counts, np.minimum(before, np.floor(before.max() * 0.05 ** (np.arange(10) / 9))))
    assert set(tailed["train"]["text"][:]) < set(balanced["train"]["text"][:])
    for name in ("validation", "test"):
        assert tailed[name]["text"][:] == balanced[name]["text"][:]


def test_classes_are_reported_by_their_size(tmp_path):
    options = {"imbalance": 0.1, "loss": "class_balanced", "class_weights_steps": 1, "num_generated": 200}
    (result,) = run(tmp_path, **options, num_train_epochs=1)
    counts = result.details["class_counts"]
    assert counts[0] > counts[-1] and len(result.details["class_recall"]) == len(counts) == 10
    assert len(result.details["class_weights"]) == -(-sum(counts) // 32)
    report = {path.name for path in (tmp_path / "report").iterdir()}
    assert report == REPORT | {"shots.md", "class_weights.png"}
    with pytest.raises(ValueError, match=r"other settings \(imbalance: 0\.1 there, None now\)"):
        run(tmp_path, **options | {"imbalance": None}, num_train_epochs=1)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a tiny encoder without a head, as most encoders come."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "encoder"
    tokenizer = train_word_tokenizer(generate_topics(50)["text"][:], 200, 40)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_local_encoder_is_fine_tuned(encoder, tmp_path):
    (result,) = run(tmp_path / "out", model_name_or_path=encoder, num_train_epochs=1, loss="flsd53")
    tuned = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert isinstance(tuned, BertForSequenceClassification)
    assert tuned.config.num_labels == 10
    assert result.data.num_parameters == tuned.num_parameters()
    before = BertModel.from_pretrained(encoder).embeddings.word_embeddings.weight
    assert (tuned.bert.embeddings.word_embeddings.weight - before).abs().max() > 1e-3


def test_texts_are_cut_to_what_an_encoder_takes(tmp_path):
    folder = tmp_path / "encoder"
    tokenizer = train_word_tokenizer(generate_topics(50)["text"][:], 200, 10**30)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    # RoBERTa's positions begin after the padding's.
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": 0, "max_position_embeddings": 40}
    RobertaModel(RobertaConfig(**sizes)).save_pretrained(folder)
    options = {"model_name_or_path": folder, "num_train_epochs": 1}
    with pytest.raises(ValueError, match=r"max_length must be at most 39, the positions of .* got 40"):
        run(tmp_path / "out", **options, max_length=40)
    assert not (tmp_path / "out").exists()
    run(tmp_path / "out", **options, max_length=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"temperature_objective": "nlll"},
            "temperature_objective must be one of ece, adaece, nll, got 'nlll'; did you mean 'nll'?",
        ),
        ({"loss": "mmce", "losses": "brier"}, "losses must be given without loss, got 'brier' and 'mmce'"),
        ({"model_name_or_path": "gpcnn"}, "got 'gpcnn'; did you mean 'gp_cnn'?"),
        ({"output_dir": ""}, "output_dir must be a folder, got ''"),
        ({"vocab_size": 2}, "vocab_size must be at least 3, '[PAD]', '[UNK]' and a word, got 2"),
        ({"resume_from_checkpoint": "/nope"}, "resume_from_checkpoint must not be given, got '/nope': a run"),
        ({"push_to_hub": "true"}, "push_to_hub must be false, got True"),
        (
            {"temperature_objective": "adaece", "multi_label": "true"},
            "temperature_objective, for several labels, must be one of ece, nll, got 'adaece'",
        ),
        ({"imbalance": 0.1, "multi_label": "true"}, "label_column must hold class labels, got 'labels' of"),
        ({"embedding_learning_rate": -1}, "embedding_learning_rate must be at least 0, got -1.0"),
    ],
)
def test_errors_come_before_training_and_leave_no_folder(options, message, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    with pytest.raises(ValueError, match=re.escape(message)):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["lost", "cut off"])
def test_a_run_goes_on_from_the_checkpoint_before_one_that_is_damaged(damage, compared, tmp_path, caplog):
    folder = shutil.copytree(compared.folder / "focal_gamma_3", tmp_path / "run")
    shutil.rmtree(folder / "report")
    file = folder / "checkpoint-8" / "optimizer.pt"
    whole = file.read_bytes()
    file.unlink() if damage == "lost" else file.write_bytes(whole[: len(whole) // 2])
    (resumed,) = run(folder, loss="focal:gamma=3")
    assert resumed.pre == pytest.approx(compared.results[1].pre, rel=0, abs=0, nan_ok=True)
    assert "checkpoint-8 is incomplete (optimizer.pt is" in caplog.text
    assert file.read_bytes()[:4] == whole[:4] and file.stat().st_size == len(whole)  # saved again


def test_settings_that_came_after_a_run_do_not_shut_it_out(compared, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    folder = shutil.copytree(compared.folder / "focal_gamma_3", tmp_path / "run")
    settings = strict_json(folder / "run.json")
    del settings["adam_epsilon"], settings["accelerator_config"]
    (folder / "run.json").write_text(json.dumps(settings))
    run(folder, loss="focal:gamma=3")


# Posts of 20 Newsgroups, with the network as in the papers' code.

POSTS = {"text_column": "body", "label_column": "topic", "variant": "official", "num_train_epochs": 1}
POSTS |= {"validation_size": 30, "eval_strategy": "no", "save_strategy": "no"}


@pytest.fixture
def posts(tmp_path):
    """Files of posts with headers; the arguments that name them."""
    sizes = {"train": 90, "test": 50}
    return {
        f"{name}_file": write_csv(tmp_path / f"{name}.csv", size, seed, "Organization: secretword\n\n")
        for seed, (name, size) in enumerate(sizes.items())
    }


def frequent_word():
    """The most frequent word of the training file."""
    words = " ".join(generate_topics(90, seed=0, num_topics=3)["text"]).split()
    return Counter(words).most_common(1)[0][0]


def test_headers_are_stripped(posts, tmp_path):
    (result,) = run(tmp_path / "stripped", **POSTS, **posts, strip="headers")
    assert result.pre["num_samples"] == 50
    assert "secretword" not in AutoTokenizer.from_pretrained(tmp_path / "stripped").get_vocab()
    run(tmp_path / "whole", **POSTS, **posts)
    assert "secretword" in AutoTokenizer.from_pretrained(tmp_path / "whole").get_vocab()


@pytest.mark.parametrize("rate", [None, 0])
def test_word_vectors_are_where_the_network_starts(rate, posts, tmp_path):
    word = frequent_word()
    (tmp_path / "vectors.txt").write_text(f"{word} {' '.join('12345678')}\n")
    options = {"embeddings_file": tmp_path / "vectors.txt", "embedding_learning_rate": rate}
    run(tmp_path / "out", **POSTS, **posts, **options, learning_rate=0.1 if rate == 0 else 1e-9)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    number = AutoTokenizer.from_pretrained(tmp_path / "out").get_vocab()[word]
    vector = network.get_input_embeddings().weight[number]
    torch.testing.assert_close(vector, torch.arange(1.0, 9), rtol=1e-4 if rate is None else 0, atol=0)


def test_what_is_refused_before_training(posts, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "FocalTrainer", NoTrainer)
    bare = {key: write_csv(tmp_path / f"bare_{key}.csv", 30, i) for i, key in enumerate(("train_file", "test_file"))}
    (tmp_path / "nan.txt").write_text(f"{frequent_word()} 1 2 3 4 5 6 7 nan\n")
    problems = [
        ({"strip": "headers,foot"}, "strip must name some of headers, footers, quotes, or be 'none', got 'foot'"),
        (bare | {"validation_size": 3, "strip": "headers"}, "strip must be 'none' .* 27 of the 27 texts of train"),
        (
            {"embeddings_file": tmp_path / "nan.txt"},
            r"nan\.txt, line 1 must hold finite values, got '1 2 3 4 5 6 7 nan'",
        ),
    ]
    for options, message in problems:
        with pytest.raises(ValueError, match=message):
            run(tmp_path / "out", **POSTS | posts | options)
    assert not (tmp_path / "out").exists()


def test_real_newsgroups(real_data, tmp_path):
    files = {}
    for split, size in (("train", 2000), ("test", 1000)):
        files[f"{split}_file"] = tmp_path / f"{split}.parquet"
        posts = Dataset.from_parquet(str(real_data / "newsgroups" / f"{split}.parquet"), cache_dir=str(tmp_path))
        posts.shuffle(seed=0).select(range(size)).to_parquet(files[f"{split}_file"])
    sizes = {
        "text_column": "text",
        "label_column": "label",
        "max_length": 20,
        "vocab_size": 500,
        "embedding_size": 4,
        "num_filters": 4,
        "validation_size": 500,
    }
    options = {"strip": "headers,footers,quotes", "max_steps": 2, "eval_strategy": "no", "save_strategy": "no"}
    (result,) = run(tmp_path / "out", **files, **sizes, **options)
    assert result.pre["num_samples"] == 1000
    assert {path.name for path in (tmp_path / "out" / "report").iterdir()} == REPORT
    bins = result.pre_bins
    assert bins.count.sum() == 1000
    assert np.nansum(bins.count * bins.accuracy) / 1000 == pytest.approx(result.pre["accuracy"], abs=1e-12)
