"""Models that Transformers saves under other names than they have in memory."""

import pytest
import torch
from tiny_models import settings, weights
from transformers import (
    MixtralConfig,
    MixtralForCausalLM,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    ViTConfig,
    ViTForImageClassification,
)

from hf_focal import FocalTrainer, FocalTrainingArguments

SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def vit():
    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, num_labels=3, **SMALL))


def segformer():
    sizes = {"depths": [1] * 4, "hidden_sizes": [8] * 4, "num_attention_heads": [1] * 4, "decoder_hidden_size": 8}
    return SegformerForSemanticSegmentation(SegformerConfig(**sizes, num_labels=3))


def mixtral():
    sizes = SMALL | {"vocab_size": 11, "num_key_value_heads": 2, "num_local_experts": 2}
    return MixtralForCausalLM(MixtralConfig(**sizes, bos_token_id=1, eos_token_id=2))


def samples(make_model, count=12):
    draw = torch.Generator().manual_seed(0)

    def classes(*shape, top=3):
        return torch.randint(top, shape, generator=draw)

    if make_model is mixtral:
        return [{"input_ids": tokens, "labels": tokens} for tokens in classes(count, 5, top=11)]
    size, labels = (16, ()) if make_model is vit else (32, (32, 32))
    images = torch.randn(count, 3, size, size, generator=draw)
    return [{"pixel_values": image, "labels": classes(*labels)} for image in images]


def trainer_of(make_model, folder, **options):
    torch.manual_seed(0)
    saved = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6, "per_device_train_batch_size": 4}
    args = FocalTrainingArguments(**settings(folder, loss="flsd53", learning_rate=0.01) | saved | options)
    data = samples(make_model)
    return FocalTrainer(make_model(), args, train_dataset=data, eval_dataset=data[:5])


@pytest.mark.parametrize("make_model", [vit, segformer, mixtral])
def test_a_resumed_training_ends_with_the_weights_of_an_unbroken_one(make_model, tmp_path):
    whole = trainer_of(make_model, tmp_path)
    whole.train()
    resumed = trainer_of(make_model, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_the_best_model_has_the_weights_of_its_checkpoint(tmp_path):
    # With such a rate the model always predicts one class, so no later checkpoint is better than the first.
    best = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "error",
    }
    trainer = trainer_of(vit, tmp_path, **best | {"learning_rate": 1.0})
    trainer.train()
    checkpoint = trainer.state.best_model_checkpoint
    assert not checkpoint.endswith("checkpoint-6")
    expected = ViTForImageClassification.from_pretrained(checkpoint)
    assert torch.equal(weights(trainer.model), weights(expected))
