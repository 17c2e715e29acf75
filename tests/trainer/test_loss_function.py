"""`loss_func` in trainers that know nothing of hf_focal."""

import pytest
import torch
from tiny_models import BagOfWords, rows, settings, tensors, tiny_bert, weights
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from hf_focal import build_loss, loss_func


def trained(folder, model, data, compute_loss_func, **options):
    args = TrainingArguments(**settings(folder, **options))
    trainer = Trainer(model=model, args=args, train_dataset=data, compute_loss_func=compute_loss_func)
    trainer.train()
    return weights(model), trainer


@pytest.mark.parametrize("build", [tiny_bert, BagOfWords])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_accumulation_changes_nothing_even_where_the_last_is_short(build, reduction, tmp_path):
    # Steps of 8 and 3 rows, cut into micro-batches of 2, 2, 2, 2 and of 2, 1.
    loss = loss_func("flsd53", reduction=reduction)
    whole, _ = trained(tmp_path, build(), rows(11), loss, learning_rate=0.1)
    cut = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    accumulated, _ = trained(tmp_path, build(), rows(11), loss, learning_rate=0.1, **cut)
    assert (whole - weights(build())).abs().max() > 1e-3
    torch.testing.assert_close(accumulated, whole, rtol=0, atol=1e-12)


def test_a_step_is_that_of_the_cross_entropy_of_pytorch(tmp_path):
    model, data = tiny_bert(), rows(8)
    ids, labels = tensors(data)
    F.cross_entropy(model(input_ids=ids).logits, labels).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    stepped, _ = trained(tmp_path, tiny_bert(), data, loss_func("cross_entropy"))
    torch.testing.assert_close(stepped, weights(model), rtol=0, atol=1e-12)


def test_without_it_the_step_of_bert_grows_with_accumulation(tmp_path):
    # Why cross-entropy needs loss_func too: BERT ignores num_items_in_batch and Trainer believes that it does not.
    start, cut = weights(tiny_bert()), {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    whole, _ = trained(tmp_path, tiny_bert(), rows(8), None)
    accumulated, _ = trained(tmp_path, tiny_bert(), rows(8), None, **cut)
    torch.testing.assert_close(accumulated - start, 4 * (whole - start), rtol=0, atol=1e-12)


def gpt2():
    torch.manual_seed(0)
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    sizes = {"vocab_size": 30, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=1, **sizes, **dropout)).double()


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=30, **sizes)).double()


@pytest.mark.parametrize(("build", "first_label"), [(gpt2, -100), (llama, 3)])
def test_shifted_labels_are_those_of_a_causal_language_model(build, first_label, tmp_path):
    ids, _ = tensors(rows(6))
    labels = ids.clone()
    labels[:, 0] = first_label
    labels[0, :5] = labels[3, 2:] = -100  # rows of unequal numbers of tokens
    data = [{"input_ids": row, "labels": target} for row, target in zip(ids, labels, strict=True)]
    model, loss = build(), loss_func("cross_entropy", shift_labels=True)
    outputs = model(input_ids=ids)
    expected = F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    assert loss(outputs, labels).item() == pytest.approx(expected.item(), abs=1e-12)
    expected.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    cut = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    stepped, _ = trained(tmp_path, build(), data, loss, **cut)
    torch.testing.assert_close(stepped, weights(model), rtol=0, atol=1e-12)


def one_hot(count):
    return [row | {"labels": F.one_hot(torch.tensor(row["labels"]), 4).double()} for row in rows(count)]


@pytest.mark.parametrize("problem_type", ["multi_label_classification", None])
def test_several_labels_a_row_are_refused(problem_type, tmp_path):
    model = tiny_bert(problem_type=problem_type)
    before = weights(model)
    with pytest.raises(
        ValueError, match=r"labels must be class indices .* got torch\.float64 \(8, 4\) .*link='sigmoid'"
    ):
        trained(tmp_path, model, one_hot(8), loss_func("cross_entropy"))
    assert torch.equal(weights(model), before)


def test_several_labels_a_row_are_those_of_the_models_own_loss():
    model = tiny_bert(problem_type="multi_label_classification")
    ids, labels = tensors(rows(8))[0], torch.stack([row["labels"] for row in one_hot(8)])
    loss = loss_func("cross_entropy", link="sigmoid")
    expected = model(input_ids=ids, labels=labels).loss
    assert loss(model(input_ids=ids), labels).item() == pytest.approx(expected.item(), rel=1e-12)
    with pytest.raises(ValueError, match=r"for logits .*needs loss_func"):  # integers, too
        loss_func("cross_entropy")(model(input_ids=ids), labels.long())


NO_LOGITS = "model must have logits of the labels' classes in its output, got start_logits, end_logits"


@pytest.mark.parametrize(
    ("outputs", "labels", "error", "message"),
    [
        ({"start_logits": torch.zeros(2, 5), "end_logits": torch.zeros(2, 5)}, None, ValueError, NO_LOGITS),
        (
            {"logits": torch.zeros(2, 9, 4), "pred_boxes": torch.zeros(2, 9, 4)},
            [{}, {}],
            TypeError,
            "labels.*got list",
        ),
        (
            {"logits": torch.zeros(2, 1)},
            torch.zeros(2),
            ValueError,
            "class indices.* got torch.float32 .*a regression has no probabilities",
        ),
        ({"logits": torch.zeros(2, 1)}, torch.zeros(2).long(), ValueError, "at least 2 classes"),
        (
            {"logits": torch.zeros(2, 9, 4)},
            torch.ones(2, 3).long(),
            ValueError,
            r"got \(2, 3\) for \(2, 9, 4\): .*CTC",
        ),
        ({"logits": torch.zeros(2, 4)}, torch.ones(2, 4).long(), ValueError, "needs loss_func.*sigmoid"),
    ],
    ids=["question answering", "detection", "regression", "regression to integers", "CTC", "multi-label"],
)
def test_heads_without_a_softmax_are_refused(outputs, labels, error, message):
    with pytest.raises(error, match=message):
        loss_func("focal:gamma=2")(outputs, labels)


@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        ("focal:schedule=5/3/2", "changes γ during training"),
        ("adafocal", "changes γ during training"),
        ("recall:ema=0.1", "averages recall over the steps of the training"),
        ("class_balanced", "weights classes by their numbers of training samples"),
    ],
)
def test_losses_that_need_a_driver_are_refused(loss, problem):
    with pytest.raises(
        ValueError,
        match=f"loss must be one that a stock Trainer can drive, got {loss}, which {problem}.*: use FocalTrainer",
    ):
        loss_func(loss)


@pytest.mark.parametrize("loss", ["recall", "class_balanced:weights=1/2/3/4"])
def test_losses_that_weigh_classes_by_themselves_serve_stock_trainers(loss, tmp_path):
    data, model = rows(8), BagOfWords()
    ids, labels = tensors(data)
    build_loss(loss)(model(ids)["logits"], labels).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.5 * parameter.grad
    stepped, _ = trained(tmp_path, BagOfWords(), data, loss_func(loss))
    torch.testing.assert_close(stepped, weights(model), rtol=0, atol=1e-12)


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ValueError, match="reduction must be 'mean' or 'sum', got 'none'"):
        loss_func("brier", reduction="none")


def test_a_batch_without_labels_is_an_error():
    with pytest.raises(ValueError, match=r"labels must be in the batch, got None.*'label' or 'labels'"):
        loss_func("brier")({"logits": torch.zeros(2, 3)}, None)
