"""Tiny random language models in float64, sentences for them, and the loss of a step computed without the package."""

import math

import tiny_models
import torch
import transformers
from tiny_models import sgd_step, weights
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PrinterCallback

from hf_focal import CalibrationMetrics, FocalSeq2SeqTrainer, FocalTrainer

VOCABULARY, PAD, EOS = 24, 0, 1
IDS = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": 2}
BART = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 32}
BART |= {"dropout": 0.0, "decoder_start_token_id": PAD, "forced_eos_token_id": None}
M2M100 = BART | {"decoder_start_token_id": 2, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
M2M100 |= {"attention_dropout": 0.0}
T5 = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
GPT2 = {"n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
LLAMA = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
MODELS = {
    "marian": ("MarianMTModel", BART | {"decoder_vocab_size": VOCABULARY}),
    "t5": ("T5ForConditionalGeneration", T5 | {"decoder_start_token_id": PAD}),
    "bart": ("BartForConditionalGeneration", BART),
    "mbart": ("MBartForConditionalGeneration", BART),
    "m2m100": ("M2M100ForConditionalGeneration", M2M100),
    "gpt2": ("GPT2LMHeadModel", GPT2 | {"attn_pdrop": 0.0}),
    "llama": ("LlamaForCausalLM", LLAMA | {"num_key_value_heads": 1, "max_position_embeddings": 32}),
}


def build(name: str, **options) -> nn.Module:
    """A model whose weights are all random, those of norms and biases too, and confidences differ."""
    class_name, config = MODELS[name]
    model_class = getattr(transformers, class_name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**IDS | config | options))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # not computed ones, the sinusoids of positions
                parameter.add_(0.4 * torch.randn_like(parameter))
    model.generation_config.max_length = 9
    return model.double().eval()


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    """Token ids of 2 to 8 tokens, the last of them the end of the sentence."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 8, (count,), generator=generator).tolist()
    return [[*torch.randint(3, VOCABULARY, (length,), generator=generator).tolist(), EOS] for length in lengths]


def translations(count: int, seed: int = 0) -> list[dict]:
    """Sentences and their translations, which do not depend on each other."""
    pairs = zip(sentences(count, seed), sentences(count, seed + 1000), strict=True)
    return [{"input_ids": source, "labels": target} for source, target in pairs]


def texts(count: int, seed: int = 0) -> list[dict]:
    """Sentences. Of every third only the latter half counts, as behind a prompt; one does not count at all."""
    rows = [{"input_ids": ids, "labels": list(ids)} for ids in sentences(count, seed)]
    for row in rows[::3]:
        half = len(row["labels"]) // 2
        row["labels"][:half] = [-100] * half
    rows[4]["labels"] = [-100] * len(rows[4]["labels"])
    return rows


def padded(rows: list[dict]) -> dict[str, Tensor]:
    def pad(sequences: list[list[int]], value: int) -> Tensor:
        tensors = [torch.tensor(sequence) for sequence in sequences]
        return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)

    sources = [row["input_ids"] for row in rows]
    batch = {"input_ids": pad(sources, PAD), "attention_mask": pad([[1] * len(ids) for ids in sources], 0)}
    return batch | ({"labels": pad([row["labels"] for row in rows], -100)} if "labels" in rows[0] else {})


def tokens_of(model: nn.Module, rows: list[dict]) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and labels (N,) of the tokens that count, by the model's own forward with labels."""
    batch = padded(rows)
    logits, labels = model(**batch).logits, batch["labels"]
    if not model.config.is_encoder_decoder:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return logits[labels != -100], labels[labels != -100]


def mean_loss(name: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Of tokens (N, K), written out."""
    if name == "label_smoothing:alpha=0.1":
        return F.cross_entropy(logits, labels, label_smoothing=0.1)
    log_p = logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    p = log_p.exp()
    gamma = {"cross_entropy": 0, "focal:gamma=2": 2, "flsd53": torch.where(p < 0.2, 5, 3)}[name]
    return (-((1 - p) ** gamma) * log_p).mean()


def metrics_of(model: nn.Module, rows: list[dict], temperature: float = 1.0) -> dict[str, float]:
    """The metrics of the tokens that count."""
    metrics = CalibrationMetrics(classwise=False)
    with torch.no_grad():
        logits, labels = tokens_of(model.eval(), rows)
    metrics.update(logits / temperature, labels)
    return {name: value for name, value in metrics.compute().items() if not math.isnan(value)}


def trainer_of(model: nn.Module, folder, **options) -> FocalTrainer:
    """The model's trainer over rows in order, or by tokens; what is no training argument goes to itself."""
    trainer_class = FocalSeq2SeqTrainer if model.config.is_encoder_decoder else FocalTrainer
    defaults = {} if "max_tokens_per_batch" in options else {"train_sampling_strategy": "sequential"}
    defaults |= {"learning_rate": 0.1, "data_collator": padded, "train_dataset": None, "eval_dataset": None}
    trainer = tiny_models.trainer_of(folder, model, trainer_class, **defaults | options)
    trainer.remove_callback(PrinterCallback)
    return trainer


def step_by_hand(model: nn.Module, loss: str, rows: list[dict]) -> float:
    """One step of SGD on the mean over the tokens of all rows; returns this mean."""
    mean = mean_loss(loss, *tokens_of(model, rows))
    mean.backward()
    sgd_step(model, 0.1)
    return mean.item()


def assert_same_change(model: nn.Module, expected: nn.Module, before: Tensor, tolerance: float = 1e-6) -> None:
    """The weights went from `before` to where those of the expected model went."""
    change, reference = weights(model) - before, weights(expected) - before
    assert reference.norm() > 1e-3
    assert (change - reference).norm() <= tolerance * reference.norm()
