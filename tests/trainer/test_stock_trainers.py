"""`loss_func` in stock trainers trains as `FocalTrainer` does, and TRL's `SFTTrainer` as a plain loop."""

import pytest
import torch
from tiny_models import rows, settings, tensors, tiny_bert, weights
from transformers import (
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from hf_focal import FocalTrainer, FocalTrainingArguments, loss_func

# Steps of 8, 8 and 5 rows: whole, or cut into micro-batches of which the last step has one fewer and a short one.
CUTS = {1: 8, 4: 2}


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


@pytest.mark.parametrize("accumulation", CUTS)
@pytest.mark.parametrize(("build", "data"), [(tiny_bert, rows(21)), (tagger, tagged())], ids=["texts", "tokens"])
def test_a_stock_trainer_trains_as_focal_trainer(build, data, accumulation, tmp_path):
    options = settings(tmp_path, num_train_epochs=2, learning_rate=0.1, gradient_accumulation_steps=accumulation)
    options["per_device_train_batch_size"] = CUTS[accumulation]
    stock = Trainer(
        model=build(), args=TrainingArguments(**options), train_dataset=data, compute_loss_func=loss_func("flsd53")
    )
    stock.train()
    ours = FocalTrainer(model=build(), args=FocalTrainingArguments(**options, loss="flsd53"), train_dataset=data)
    ours.train()
    assert stock.state.global_step == ours.state.global_step == 6
    assert (weights(ours.model) - weights(build())).abs().max() > 1e-3
    torch.testing.assert_close(weights(stock.model), weights(ours.model), rtol=0, atol=1e-12)
    logged = [[entry["loss"] for entry in t.state.log_history if "loss" in entry] for t in (stock, ours)]
    assert logged[0] == pytest.approx(logged[1], rel=1e-6)


# TRL


TEXTS = [
    "the cat sat on the mat",
    "a dog ran",
    "the dog sat on a cat and the mat ran",
    "cat and dog",
    "the mat sat",
    "a cat ran on and on",
    "on the mat a dog sat and ran",
]


def word_tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["<pad>", "<eos>", "<unk>", *sorted({word for text in TEXTS for word in text.split()})]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, pad_token_id=0, eos_token_id=1, **sizes)).double()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`compute_loss_func` is deprecated:FutureWarning")
@pytest.mark.parametrize("accumulation", [1, 3])
def test_sft_trainer_trains_as_a_plain_loop(accumulation, tmp_path):
    import trl
    from datasets import Dataset

    batch = 6 // accumulation  # steps of 6 and of 1 text
    options = settings(tmp_path, gradient_accumulation_steps=accumulation, per_device_train_batch_size=batch)
    options |= {"bf16": False, "activation_checkpointing": False, "seed": 3, "max_length": 16}
    trainer = trl.SFTTrainer(
        model=llama(),
        args=trl.SFTConfig(**options),
        train_dataset=Dataset.from_dict({"text": TEXTS}),
        processing_class=word_tokenizer(),
        compute_loss_func=loss_func("focal:gamma=2", shift_labels=True),
    )
    # In the order of the training, without the padding.
    texts = [
        [token for token in row if token]
        for batch in trainer.get_train_dataloader()
        for row in batch["input_ids"].tolist()
    ]
    trainer.train()

    tokenizer, model = word_tokenizer(), llama()
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in TEXTS]
    assert sorted(texts) == sorted(ids)
    for step in (texts[:6], texts[6:]):
        loss, tokens = 0, 0
        for text in step:
            log_p = model(input_ids=torch.tensor([text])).logits[0, :-1].log_softmax(-1)
            log_p = log_p.gather(1, torch.tensor(text[1:])[:, None])
            loss = loss - ((1 - log_p.exp()) ** 2 * log_p).sum()
            tokens += len(text) - 1
        model.zero_grad()
        (loss / tokens).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.5 * parameter.grad
    assert trainer.state.global_step == 2
    assert (weights(model) - weights(llama())).abs().max() > 1e-3
    torch.testing.assert_close(weights(trainer.model), weights(model), rtol=0, atol=1e-12)
