"""The recipe for sentiment trees, on tiny networks and trees."""

import random
import shutil

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Value
from papers.data.sentiment_trees import TreeCollator, encode_trees
from papers.runs.word_vectors import WordVectorArguments, build_optimizer
from recipe_modules import flags, import_recipe
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_focal import FocalTrainer, FocalTrainingArguments

pytestmark = pytest.mark.slow

recipe = import_recipe("sst_trees")


def run(folder, **options):
    """The recipe with a tiny network; an option that is None is left out."""
    values = {
        "output_dir": folder,
        "vocab_size": 300,
        "embedding_size": 8,
        "memory_size": 6,
        "dropout": 0,
        "num_train_epochs": 4,
        "per_device_train_batch_size": 10,
        "learning_rate": "0.1",
        "optim": "adagrad",
        "loss_reduction": "sum",
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return recipe.main(flags(values))


def write(path, trees):
    labels = [int(tree[1] in "34") for tree in trees]
    features = Features(tree=Value("string"), label=ClassLabel(names=["negative", "positive"]))
    Dataset.from_dict({"tree": trees, "label": labels}, features).to_parquet(path)


def write_trees(folder, sizes=(("train", 40), ("dev", 12), ("test", 15))):
    """Files of trees of some shapes, whose words tell their nodes' labels; none has a neutral root."""
    rng = random.Random(0)

    def node(label, depth):
        if depth == 0:
            return f"({label} {('awful', 'bad', 'so', 'good', 'great')[label]})"
        return f"({label} {node(label, depth - 1)} {node(rng.randrange(5), rng.randrange(depth))})"

    for name, size in sizes:
        trees = [node(rng.choice((0, 1, 3, 4)), rng.randrange(1, 4)) for _ in range(size)]
        write(folder / f"{name}.parquet", trees)
    names = {"train_file": "train.parquet", "validation_file": "dev.parquet", "test_file": "test.parquet"}
    return {argument: folder / name for argument, name in names.items()}


@pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
def test_a_tree_lstm_learns_from_all_nodes_and_is_measured_on_roots(tmp_path, monkeypatch):
    options = write_trees(tmp_path)
    start, trained = [], {}

    class Recording(FocalTrainer):
        def train(self, **kwargs):
            weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            start.append((weights, self.train_dataset))
            return super().train(**kwargs)

    monkeypatch.setattr(recipe, "FocalTrainer", Recording)
    for name, rate in (("slow", 0), ("fast", 0.5)):
        (result,) = run(tmp_path / name, **options, embedding_learning_rate=rate)
        assert result.pre["num_samples"] == 15
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path / name).eval()
        assert model.config.id2label == {0: "negative", 1: "positive"}
        trained[name] = model
    weights, nodes = start[0]
    assert max(map(len, nodes["labels"])) > 3
    # The word vectors have a learning rate of their own.
    moved = {name: model.embeddings.weight - weights["embeddings.weight"] for name, model in trained.items()}
    assert moved["slow"].abs().max() == 0
    assert moved["fast"].abs().max() > 0.1
    assert not torch.equal(trained["slow"].composer.weight, weights["composer.weight"])

    # The report is about the roots, and the saved model answers for them at its temperature.
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "fast")
    trees = Dataset.from_parquet(str(options["test_file"]))["tree"]
    rows = list(encode_trees(trees, tokenizer, roots_only=True))
    batch = TreeCollator(tokenizer.pad_token_id)(rows)
    labels = batch.pop("labels")
    with torch.no_grad():
        nll = torch.nn.functional.cross_entropy(trained["fast"](**batch).logits.double(), labels)
    assert nll.item() == pytest.approx(result.post["nll"], abs=1e-5)

    # Killed after its third epoch, it goes on from there to the same weights.
    shutil.copytree(tmp_path / "fast", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "report")
    shutil.rmtree(tmp_path / "killed" / "checkpoint-16")
    (resumed,) = run(tmp_path / "killed", **options, embedding_learning_rate=0.5)
    assert resumed.pre == pytest.approx(result.pre, rel=0, abs=0, nan_ok=True)
    assert resumed.temperature == result.temperature


@pytest.mark.filterwarnings("ignore:the fitted T = .* is at an end of its grid")
def test_the_papers_setting(tmp_path):
    options = write_trees(tmp_path)
    trees = Dataset.from_parquet(str(options["test_file"]))["tree"][:]
    write(options["test_file"], [*trees, "(3 (2 a) (4 treat))"])
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("bad -1 0\ngood 1 0\ntreat 2 0\n")
    paper = {"output_gate": "false", "neutral_class": "true", "embeddings_file": vectors, "embedding_size": 2}
    sgd = {"embedding_learning_rate": "1e-9", "embedding_sgd": "true", "num_train_epochs": 2}
    (result,) = run(tmp_path / "out", **options, **paper, **sgd)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert (model.classifier.out_features, model.config.num_labels, model.composer.out_features) == (3, 2, 4 * 6)
    # A word of the test trees alone has its vector.
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    treat = model.embeddings.weight[tokenizer.convert_tokens_to_ids("treat")]
    assert treat.tolist() == pytest.approx([2, 0], abs=1e-4)
    with np.load(tmp_path / "out" / "logits.npz") as saved:
        assert saved["validation_logits"].shape == (12, 2)
        error = (saved["test_logits"].argmax(1) != saved["test_labels"]).mean()
    assert error == pytest.approx(result.pre["error"])


def test_plain_sgd_for_the_word_vectors():
    model = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 2))
    model.get_input_embeddings = lambda: model[0]
    before = model[0].weight.detach().clone()
    args = FocalTrainingArguments(output_dir="unused", optim="adagrad", use_cpu=True, report_to="none")
    optimizer = build_optimizer(model, args, WordVectorArguments(embedding_learning_rate=0.5, embedding_sgd=True))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([1, 1, 4])).square().sum().backward()
        before -= 0.5 * model[0].weight.grad
        optimizer.step()
    torch.testing.assert_close(model[0].weight.detach(), before, rtol=0, atol=1e-5)
    args = FocalTrainingArguments(output_dir="unused", optim="sgd", use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match=r"embedding_sgd must be given with optim 'adagrad', got .*'sgd'"):
        build_optimizer(model, args, WordVectorArguments(embedding_learning_rate=0.5, embedding_sgd=True))
