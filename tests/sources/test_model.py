"""What a trained model is for, where its rows are, and how its words are cut."""

import json

import pytest
import trained_models
from datasets import Dataset
from test_heads import REFUSED, ROW, WORKS, shell
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    GPT2Config,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    NllbTokenizer,
    RobertaConfig,
    RobertaForTokenClassification,
    RobertaTokenizer,
    SegformerConfig,
    T5Config,
    TimmWrapperConfig,
    ViTConfig,
)

from hf_focal import InputError
from hf_focal.reports.run_results import known_loss
from hf_focal.sources.model import ModelSource, loss_of, public_name
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


def test_a_model_without_a_loss_has_its_name():
    assert loss_of("org/name") == "name"
    # Only a report says what a model was trained with.
    assert loss_of("org/brier") == "model brier" and known_loss("model brier") is None
    assert loss_of("org/focal:gamma=3") == "model focal:gamma=3" and known_loss("model focal:gamma=3") is None


def test_a_path_is_published_by_its_last_part(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert public_name(str(tmp_path / "org" / "name")) == "name"
    assert public_name("org/name") == "org/name"
    monkeypatch.chdir(tmp_path / "org" / "name")
    assert public_name(".") == public_name("../name/") == "name"


def test_groups_and_clusters_are_those_of_the_scores_whatever_the_lengths_of_the_texts(tmp_path):
    case = trained_models.build("texts", tmp_path)  # texts of several lengths, which are encoded the longest first
    rows = Dataset.from_parquet(str(case.test))
    names = [f"{row['label']}{number % 2}" for number, row in enumerate(rows)]
    rows.add_column("name", names).to_parquet(tmp_path / "named.parquet")
    for column in ("group", "cluster_column"):
        source = ModelSource(case.folder, None, 16, 15, {**case.options, column: "name"})
        data = source.read(Data("dataset", str(tmp_path / "named.parquet")))
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
    return {frozenset(score for of, score in pairs if of == key) for key, _ in pairs}


@pytest.fixture
def several_languages(tmp_path):
    """The folder of a model of English and German, and a file of one pair."""
    tokenizer = NllbTokenizer(
        vocab={"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "▁": 4, "a": 5, "▁a": 6, "b": 7, "▁b": 8},
        merges=[("▁", "a"), ("▁", "b")],
        extra_special_tokens=["eng_Latn", "deu_Latn"],
    )
    sizes = {
        f"{part}_{name}": 2 for part in ("encoder", "decoder") for name in ("layers", "attention_heads", "ffn_dim")
    }
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer), d_model=8, **sizes))
    for part in (tokenizer, model):
        part.save_pretrained(tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps({"source": "a", "target": "b"}))
    return tmp_path


def encoded_by(folder, **options):
    trained = ModelSource(folder, None, 1, 15, options)
    source, rows = trained.load(Data("dataset", str(folder / "rows.json")))
    return trained.processor, trained.encode(source, rows)[0][0]


def test_texts_are_marked_with_their_languages(several_languages):
    tokenizer, row = encoded_by(several_languages, source_lang="eng_Latn", target_lang="deu_Latn")
    assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == ["eng_Latn", "▁a", "</s>"]
    assert tokenizer.convert_ids_to_tokens(row["labels"]) == ["deu_Latn", "▁b", "</s>"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "source_lang must be given for .*, a multilingual model, got None"),
        ({"source_lang": "eng_Latn"}, "target_lang must be given"),
        ({"source_lang": "eng_Latn", "target_lang": "de"}, "target_lang must be a language of .*, got 'de'"),
        ({"source_lang": "▁a", "target_lang": "eng_Latn"}, "source_lang must be a language of .*, got '▁a'"),
    ],
)
def test_languages_that_a_model_must_be_told(several_languages, options, message):
    with pytest.raises(InputError, match=message):
        encoded_by(several_languages, **options)


def test_words_of_a_byte_level_model_begin_with_spaces(tmp_path):
    cut = Tokenizer(models.BPE())
    cut.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    cut.train_from_iterator(["a cat sat on a mat"] * 9, trainer)
    learnt = json.loads(cut.to_str())["model"]
    tokenizer = RobertaTokenizer(vocab=learnt["vocab"], merges=[tuple(pair) for pair in learnt["merges"]])
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    for part in (tokenizer, RobertaForTokenClassification(RobertaConfig(vocab_size=len(cut.get_vocab()), **sizes))):
        part.save_pretrained(tmp_path)
    (tmp_path / "rows.json").write_text(json.dumps({"tokens": ["cat", "xyz", "mat"], "tags": [0, 1, 0]}))
    trained = ModelSource(tmp_path, None, 1, 15, {"max_length": 50})
    source, rows = trained.load(Data("dataset", str(tmp_path / "rows.json")))
    (encoded,), _ = trained.encode(source, rows)
    # As in "cat xyz mat" within a text; only the first token of a word has its label.
    assert encoded["input_ids"] == tokenizer(" cat xyz mat")["input_ids"]
    assert [label for label in encoded["labels"] if label != -100] == [0, 1, 0]
    assert len(encoded["labels"]) == len(encoded["input_ids"]) > 5
