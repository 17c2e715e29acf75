"""What a trained model is for, where its rows are, and how its words are cut."""

import pytest
import trained_models
from datasets import Dataset
from documented_heads import REFUSED, ROW, WORKS, shell
from transformers import BertConfig, GPT2Config, MarianConfig, SegformerConfig, T5Config, TimmWrapperConfig, ViTConfig

from hf_focal.sources.model_opening import open_model
from hf_focal.sources.source import Data
from hf_focal.tasks.heads import task_of_config


@pytest.mark.parametrize(
    ("config", "architecture", "task"),
    [
        (BertConfig, "BertForSequenceClassification", "text-classification"),
        (BertConfig, "BertForTokenClassification", "token-classification"),
        (ViTConfig, "ViTForImageClassification", "image-classification"),
        (TimmWrapperConfig, None, "image-classification"),
        (GPT2Config, "GPT2LMHeadModel", "causal-lm"),
        (GPT2Config, "GPT2ForSequenceClassification", "text-classification"),
        (T5Config, "T5ForConditionalGeneration", "seq2seq-lm"),
        (MarianConfig, "MarianMTModel", "seq2seq-lm"),
    ],
)
def test_a_class_says_what_its_model_is_for(config, architecture, task):
    assert task_of_config(config(architectures=architecture and [architecture])).name == task


def test_classes_that_say_nothing():
    with pytest.raises(ValueError, match="whose config names BertForMaskedLM"):
        task_of_config(BertConfig(architectures=["BertForMaskedLM"]))
    with pytest.raises(ValueError, match="no architecture: give task"):
        task_of_config(BertConfig())
    assert task_of_config(BertConfig(), "causal-lm").name == "causal-lm"


@pytest.mark.parametrize(("auto", "name"), [row[:2] for row in [*ROW.findall(WORKS), *REFUSED]])
def test_each_head_of_transformers_has_a_task_or_gets_a_sentence(auto, name):
    config = shell(name).config
    config.architectures = [name]
    tasks = {
        "AutoModelForSequenceClassification": "text-classification",
        "AutoModelForImageClassification": "image-classification",
        "AutoModelForAudioClassification": "audio-classification",
        "AutoModelForNextSentencePrediction": "text-classification",
        "AutoModelForMultipleChoice": "multiple-choice-head",
        "AutoModelForTokenClassification": "token-classification",
        "AutoModelForCausalLM": "causal-lm",
        "AutoModelForSeq2SeqLM": "seq2seq-lm",
    }
    if auto in tasks:
        assert task_of_config(config).name == tasks[auto]
        return
    with pytest.raises(
        ValueError, match=f"^model must classify texts, .*, (which|whose) .*(pixels|config names {name})"
    ):
        task_of_config(config)


def test_models_of_pixels_are_trained_but_not_taken_here():
    with pytest.raises(ValueError, match="which labels pixels: for semantic segmentation, use FocalTrainer"):
        task_of_config(SegformerConfig(architectures=["SegformerForSemanticSegmentation"]))


def test_groups_and_clusters_are_those_of_the_scores_whatever_the_lengths_of_the_texts(tmp_path):
    case = trained_models.build("texts", tmp_path)  # texts of several lengths, which are encoded the longest first
    rows = Dataset.from_parquet(str(case.test))
    names = [f"{row['label']}{number % 2}" for number, row in enumerate(rows)]
    rows.add_column("name", names).to_parquet(tmp_path / "named.parquet")
    for column in ("group", "cluster_column"):
        data = Data("dataset", str(tmp_path / "named.parquet"))
        source = open_model(case.folder, 15, **case.options, **{column: "name"})
        data = source.read(data)
        scores = data.collected()
        names_of_rows = [rows.features["label"].names[label] for label in rows["label"]]
        assert [scores.classes[label] for label in scores.labels] == names_of_rows
        if column == "group":
            assert scores.groups.tolist() == names
        else:
            assert len({(key, name) for key, name in zip(scores.clusters.tolist(), names, strict=True)}) == 6
            alone = source.read(Data("dataset", str(tmp_path / "named.parquet"))).threshold_samples()
            assert partition(alone) == partition(scores.threshold_samples())


def partition(samples) -> set[frozenset[float]]:
    """The scores of each cluster, whatever its key is."""
    pairs = [*zip(samples.clusters[0].tolist(), samples.scores[0].round(4).tolist(), strict=True)]
    return {frozenset(score for other, score in pairs if other == key) for key, _ in pairs}
