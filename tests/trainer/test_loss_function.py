"""`loss_func` in trainers that know nothing of hf_focal, TRL's `SFTTrainer` among them."""

import pytest
import tiny_models
import torch
from language_models import build, padded, texts, tokens_of
from tiny_models import BagOfWords, assert_exact, logged, rows, settings, sgd_step, tensors, tiny_bert, weights
from torch.nn import functional as F
from transformers import BertForTokenClassification, Trainer, TrainingArguments

from hf_focal import build_loss, loss_func

CUT = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}


def trained(folder, model, data, compute_loss_func, **options):
    trainer_options = {"data_collator": options.pop("data_collator", None), "compute_loss_func": compute_loss_func}
    args = TrainingArguments(**settings(folder, **options))
    trainer = Trainer(model=model, args=args, train_dataset=data, **trainer_options)
    trainer.train()
    return trainer


def tagger():
    torch.manual_seed(0)
    model = BertForTokenClassification(tiny_bert().config).double()
    with torch.no_grad():
        model.classifier.weight.mul_(40)
    return model


def tagged():
    """Rows of 6 tokens of which 0 to 5 are ignored."""
    ids, _ = tensors(rows(21))
    labels = ids % 4
    for row, ignored in enumerate(labels):
        ignored[: row % 6] = -100
    return [{"input_ids": row, "labels": target} for row, target in zip(ids, labels, strict=True)]


@pytest.mark.parametrize("cut", [{}, CUT], ids=["whole", "cut"])
@pytest.mark.parametrize(
    ("build", "data"),
    [(tiny_bert, rows(21)), (BagOfWords, rows(21)), (tagger, tagged())],
    ids=["texts", "plain module", "tokens"],
)
def test_a_stock_trainer_trains_as_focal_trainer(build, data, cut, tmp_path):
    # Steps of 8, 8 and 5 rows, the last one cut into fewer micro-batches of which one is short.
    options = {"num_train_epochs": 2, "learning_rate": 0.1} | cut
    stock = trained(tmp_path, build(), data, loss_func("flsd53"), **options)
    ours = tiny_models.trainer_of(tmp_path, build(), loss="flsd53", train_dataset=data, **options)
    ours.train()
    assert stock.state.global_step == ours.state.global_step == 6
    assert (weights(ours.model) - weights(build())).abs().max() > 1e-3
    assert_exact(weights(stock.model), weights(ours.model))
    assert logged(stock) == pytest.approx(logged(ours), rel=1e-6)


@pytest.mark.parametrize(
    "loss", ["cross_entropy", "recall", "class_balanced:weights=1/2/3/4", pytest.param("brier", id="sum")]
)
def test_a_step_is_that_of_the_loss(loss, tmp_path):
    reduction = "sum" if loss == "brier" else "mean"
    data, model = rows(8), BagOfWords()
    ids, labels = tensors(data)
    build_loss(loss)(model(ids)["logits"], labels, reduction=reduction).backward()
    sgd_step(model)
    stock = trained(tmp_path, BagOfWords(), data, loss_func(loss, reduction=reduction))
    assert_exact(weights(stock.model), weights(model))


def test_without_it_the_step_of_bert_grows_with_accumulation(tmp_path):
    # Why cross-entropy needs loss_func too: BERT ignores num_items_in_batch and Trainer believes that it does not.
    start = weights(tiny_bert())
    whole, accumulated = (
        weights(trained(tmp_path, tiny_bert(), rows(8), None, **options).model) for options in ({}, CUT)
    )
    assert_exact(accumulated - start, 4 * (whole - start))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_shifted_labels_are_those_of_a_causal_language_model(family, tmp_path):
    model, data, loss = build(family), texts(6), loss_func("cross_entropy", shift_labels=True)
    for row in data:  # whose first label Trainer counts with GPT2LMHeadModel
        row["labels"][0] = -100 if family == "gpt2" else row["labels"][0]
    expected = F.cross_entropy(*tokens_of(model, data))
    outputs = model(**padded(data))
    assert loss(outputs, padded(data)["labels"]).item() == pytest.approx(expected.item(), abs=1e-12)
    expected.backward()
    sgd_step(model, 0.5)
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "data_collator": padded}
    options["train_sampling_strategy"] = "sequential"
    assert_exact(weights(trained(tmp_path, build(family), data, loss, **options).model), weights(model))


def one_hot(count):
    return [row | {"labels": F.one_hot(torch.tensor(row["labels"]), 4).double()} for row in rows(count)]


def test_several_labels_a_row_are_refused_or_those_of_the_models_own_loss(tmp_path):
    model = tiny_bert(problem_type="multi_label_classification")
    before = weights(model)
    message = r"labels must be class indices .* got torch\.float64 \(8, 4\) .*link='sigmoid'"
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, model, one_hot(8), loss_func("cross_entropy"))
    assert torch.equal(weights(model), before)
    ids, labels = tensors(rows(8))[0], torch.stack([row["labels"] for row in one_hot(8)])
    expected = model(input_ids=ids, labels=labels).loss
    actual = loss_func("cross_entropy", link="sigmoid")(model(input_ids=ids), labels)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-12)


ONES = torch.ones(2, 4, dtype=torch.long)
REFUSED = {
    "question answering": (
        {"start_logits": torch.zeros(2, 5), "end_logits": torch.zeros(2, 5)},
        None,
        "model must have logits of the labels' classes in its output, got start_logits, end_logits",
    ),
    "detection": ({"logits": torch.zeros(2, 9, 4), "pred_boxes": torch.zeros(2, 9, 4)}, [{}, {}], "labels.*got list"),
    "regression": ({"logits": torch.zeros(2, 1)}, torch.zeros(2), "indices.* got torch.float32 .*a regression has no"),
    "regression to integers": ({"logits": torch.zeros(2, 1)}, ONES[:, 0], "at least 2 classes"),
    "CTC": ({"logits": torch.zeros(2, 9, 4)}, ONES[:, :3], r"got \(2, 3\) for \(2, 9, 4\): .*CTC"),
    "multi-label": ({"logits": torch.zeros(2, 4)}, ONES, "needs loss_func.*sigmoid"),
    "no labels": ({"logits": torch.zeros(2, 3)}, None, r"labels must be in the batch, got None.*'label' or 'labels'"),
}


@pytest.mark.parametrize(("outputs", "labels", "message"), REFUSED.values(), ids=REFUSED)
def test_heads_without_a_softmax_are_refused(outputs, labels, message):
    with pytest.raises((TypeError, ValueError), match=message):
        loss_func("focal:gamma=2")(outputs, labels)


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        ("focal:schedule=5/3/2", "changes γ during training"),
        ("recall:ema=0.1", "averages recall over the steps of the training"),
        ("class_balanced", "weights classes by their numbers of training samples"),
    ],
)
def test_losses_that_need_a_driver_are_refused(loss, problem):
    message = f"loss must be one that a stock Trainer can drive, got {loss}, which {problem}.*: use FocalTrainer"
    with pytest.raises(ValueError, match=message):
        loss_func(loss)
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'sum', got 'none'"):
        loss_func("brier", reduction="none")


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`compute_loss_func` is deprecated:FutureWarning")
@pytest.mark.parametrize("accumulation", [1, 3])
def test_sft_trainer_trains_as_a_plain_loop(accumulation, tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from test_sft_trainer import tokenizer

    batch = 6 // accumulation  # steps of 6 and of 1 text
    options = settings(tmp_path, gradient_accumulation_steps=accumulation, per_device_train_batch_size=batch)
    options |= {"bf16": False, "activation_checkpointing": False, "max_length": 16}
    words = ["w0 w1 w2", "w3", "w4 w5 w6 w7 w8", "w9 w10", "w11 w1", "w2 w3 w12 w13", "w14 w15 w0 w1 w5"]
    trainer = trl.SFTTrainer(
        model=build("llama"),
        args=trl.SFTConfig(**options),
        train_dataset=Dataset.from_dict({"text": words}),
        processing_class=tokenizer(),
        compute_loss_func=loss_func("focal:gamma=2", shift_labels=True),
    )
    # In the order of the training, without the padding.
    batches = [batch["input_ids"].tolist() for batch in trainer.get_train_dataloader()]
    order = [[token for token in row if token] for batch in batches for row in batch]
    trainer.train()
    model = build("llama")
    assert sorted(order) == sorted(tokenizer()(text + "</s>")["input_ids"] for text in words)
    for step in (order[:6], order[6:]):
        loss, tokens = 0, 0
        for text in step:
            log_p = model(input_ids=torch.tensor([text])).logits[0, :-1].log_softmax(-1)
            log_p = log_p.gather(1, torch.tensor(text[1:])[:, None])
            loss = loss - ((1 - log_p.exp()) ** 2 * log_p).sum()
            tokens += len(text) - 1
        (loss / tokens).backward()
        sgd_step(model)
    assert trainer.state.global_step == 2
    assert_exact(weights(trainer.model), weights(model))
