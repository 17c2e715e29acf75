"""Word vectors of the papers' text models: arguments, loading, and an optimizer with a separate learning rate."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, set_seed

from hf_focal.trainer import FocalTrainingArguments
from papers import checks as check
from papers.argument_fields import argument


@dataclass
class WordVectorArguments:
    """The arguments of the vocabulary and its word vectors."""

    _argument_group_name = "word vectors"
    vocab_size: int = argument(20_000, "Words in the vocabulary.")
    embedding_size: int = argument(100, "Width of the word vectors.")
    embeddings_file: str | None = argument(
        None, "Word vectors in GloVe's format to start from. Default: random vectors."
    )
    embedding_learning_rate: float | None = argument(
        None, "Learning rate of the word vectors, without weight decay; 0 freezes them. Default: learning_rate."
    )
    embedding_sgd: bool = argument(False, "Update the word vectors by plain SGD; needs --optim adagrad.")

    def __post_init__(self) -> None:
        check.at_least(1, self, "embedding_size")
        check.at_least(0, self, "embedding_learning_rate")
        if self.embeddings_file is not None and not Path(self.embeddings_file).is_file():
            raise FileNotFoundError(f"embeddings_file must be an existing file, got {self.embeddings_file!r}")


def load_word_vectors(
    arguments: WordVectorArguments, tokenizer: PreTrainedTokenizerBase, seed: int, *, zero_unknown: bool = False
) -> torch.Tensor | None:
    """Read word vectors for a vocabulary from GloVe's text format, "word v1 v2 ..." [Pennington et al., EMNLP 2014].

    Returns the vectors of the tokenizer's V tokens, float32 (V, embedding_size), which are looked up in the UTF-8 file
    as they are; None without a file. Words that are not in the file get zeros if `zero_unknown`, and else draws from a
    normal distribution with the mean and the standard deviation of all values that were found. The vector of padding
    is zero. `ValueError` if a line does not have as many finite values, or no word of the vocabulary is in the file.
    """
    path, embedding_size = arguments.embeddings_file, arguments.embedding_size
    if path is None:
        return None
    set_seed(seed)
    ids, vectors = [], []
    vocabulary = tokenizer.get_vocab()
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            # The first line is split at every space, to check the number of values. On later lines, everything before
            # the values is the word, because a few words contain spaces.
            word, *values = line.rstrip().rsplit(" ", embedding_size if number > 1 else -1)
            if len(values) != embedding_size:
                raise ValueError(
                    f"{path}, line {number} must hold embedding_size {embedding_size} values, got {len(values)}"
                )
            if word in vocabulary:
                ids.append(vocabulary[word])
                vectors.append([float(value) for value in values])
                if not all(map(math.isfinite, vectors[-1])):
                    raise ValueError(f"{path}, line {number} must hold finite values, got {' '.join(values)!r}")
    if not ids:
        raise ValueError(f"{path} must contain words of the tokenizer, got none of its {len(vocabulary)}")
    pretrained = torch.tensor(vectors)
    if zero_unknown:
        matrix = torch.zeros(len(tokenizer), embedding_size)
    else:
        matrix = torch.randn(len(tokenizer), embedding_size) * pretrained.std(correction=0) + pretrained.mean()
    matrix[ids] = pretrained
    if tokenizer.pad_token_id is not None:
        matrix[tokenizer.pad_token_id] = 0
    return matrix


def build_optimizer(
    model: PreTrainedModel, args: FocalTrainingArguments, arguments: WordVectorArguments
) -> torch.optim.Optimizer | None:
    """Build the optimizer that `args` name, with a separate learning rate for the word vectors; 0 freezes the vectors.

    Return None if `arguments` set no separate learning rate. Raise `ValueError` for `embedding_sgd` without AdaGrad.
    """
    learning_rate = arguments.embedding_learning_rate
    if learning_rate is None:
        return None
    kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
    if arguments.embedding_sgd and kind is not torch.optim.Adagrad:
        raise ValueError(f"embedding_sgd must be given with optim 'adagrad', got {args.optim!r}")
    model.to(args.device)  # Adagrad creates its state when it is built, on the device of the weights
    vectors = model.get_input_embeddings().weight
    assert isinstance(vectors, nn.Parameter)
    rest = [parameter for parameter in model.parameters() if parameter is not vectors]
    groups = [{"params": rest, "weight_decay": args.weight_decay}]
    if learning_rate == 0:
        vectors.requires_grad_(False)
    elif arguments.embedding_sgd:  # AdaGrad divides by √(Σ g²) + eps, which a huge eps makes constant: plain SGD
        groups.append({"params": [vectors], "lr": 1e6 * learning_rate, "eps": 1e6, "weight_decay": 0.0})
    else:
        groups.append({"params": [vectors], "lr": learning_rate, "weight_decay": 0.0})
    if kind is torch.optim.Adagrad:  # fused halves the time of a Tree-LSTM's step; Trainer does not ask for it
        options["fused"] = args.device.type == "cpu"
    return kind(groups, **options)
