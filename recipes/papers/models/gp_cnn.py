"""Global-pooling CNN of the 20 Newsgroups experiments [Mukhoti et al., NeurIPS 2020, appendix], in two variants."""

import math
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple

VARIANTS = ("official", "strided")
# Texts that the official variant convolves at a time on the CPU: texts of similar lengths, which stay in the cache.
_TEXTS_AT_A_TIME = 12


@strict
class GPCNNConfig(PreTrainedConfig):
    """Configuration of a [`GPCNNForSequenceClassification`]. The defaults are those of the paper's code.

    Args:
        variant: "official", the network of the paper's code (`NewsGroup/ng_model.py` of torrvision/focal_calibration
            on GitHub), or "strided", a faster one; see [`GPCNNForSequenceClassification`].
        vocab_size: number of embeddings.
        embedding_size: width of a word vector.
        num_filters: channels of every convolution.
        kernel_size: number of words in a convolution's window; odd, so that "same" padding is symmetric.
        pool_size: width of the max-pool after each convolution except the last.
        num_layers: number of convolutions, at least 1. A global max-pool follows the last convolution.
        hidden_size: width of the dense layer before the linear head.
        dropout: dropout probability of the dense layer.
        max_words: the official variant pads texts to this many words, at the front, and of longer texts reads the last
            words.
        pad_token_id: id of the padding token, whose vector stays zero, or None; it marks padding if no attention mask
            is given.
        unk_token_id: id of words that are not in the vocabulary, which the official variant leaves out, or None.
    """

    model_type = "gp_cnn"

    variant: str = "official"
    vocab_size: int = 20_000
    embedding_size: int = 100
    num_filters: int = 128
    kernel_size: int = 5
    pool_size: int = 5
    num_layers: int = 3
    hidden_size: int = 128
    dropout: float | int = 0.3
    max_words: int = 1000
    pad_token_id: int | None = 0
    unk_token_id: int | None = None


class GPCNNForSequenceClassification(PreTrainedModel):
    """Embedding → (conv, ReLU, max-pool) × (num_layers - 1) → conv, ReLU → global max-pool → dense, ReLU → linear.

    In the variant "official", convolutions have no padding of their own, max-pools have stride 1, and weights start as
    PyTorch's do. A text is padded at the front with zero vectors to `max_words` words. Padding is not masked: windows
    of padding take part in the pools, with the biases. All windows that hold only padding are equal, so the network
    convolves just one of them and the windows that reach into the text; its outputs and gradients are those of all
    `max_words` words.

    In the variant "strided", convolutions have "same" padding, max-pools have a stride of their width, weights start
    as Keras' do, and padding is masked.

    Logits do not depend on the amount of padding in `input_ids`, nor on its side; the logits of an empty text do not
    depend on the embeddings. The head is `classifier`.
    """

    config_class = GPCNNConfig
    main_input_name = "input_ids"
    _input_embed_layer = "embeddings"  # where Transformers finds the word vectors

    def __init__(self, config: GPCNNConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        widths = [config.embedding_size] + [config.num_filters] * config.num_layers
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, config.num_filters, config.kernel_size) for width in widths[:-1]
        )
        self.dense = nn.Linear(config.num_filters, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv1d | nn.Linear):
            if self.config.variant == "official":
                init.kaiming_uniform_(module.weight, a=math.sqrt(5))
                bound = 1 / math.sqrt(module.weight[0].numel())
                init.uniform_(module.bias, -bound, bound)
            else:
                init.xavier_uniform_(module.weight)
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            # Without pretrained vectors, embeddings must start small: with N(0, 0.4), the scale of GloVe, the network
            # memorizes texts before it learns words.
            init.uniform_(module.weight, -0.05, 0.05)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify texts of any number of words, including 0: `input_ids` is int64 (batch, words).

        `attention_mask` is 1 for words and 0 for padding; without it, `pad_token_id` marks padding. The output has
        `logits`, (batch, num_labels), and, with labels, int64 (batch,), the cross-entropy that Transformers'
        classifiers compute.
        """
        if attention_mask is not None:
            mask = attention_mask.bool()
        elif self.config.pad_token_id is not None:
            mask = input_ids != self.config.pad_token_id
        else:
            mask = torch.ones_like(input_ids, dtype=torch.bool)
        hidden = (self._official if self.config.variant == "official" else self._strided)(input_ids, mask)
        hidden = self.dropout(F.relu(self.dense(hidden)))
        logits = self.classifier(hidden)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    # Texts are images of height 1, (batch, channels, 1, words), with channels last in memory: on the CPU, conv2d is
    # then 2.4 times as fast as conv1d, which needs channels first. The ReLU comes after the pool because the result is
    # the same.

    def _official(self, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the globally pooled activations, (batch, num_filters)."""
        config = self.config
        if config.unk_token_id is not None:
            mask = mask & (input_ids != config.unk_token_id)
        lengths = mask.sum(1).clamp(max=config.max_words)
        # Number of words that a unit of the last layer sees, which is also the padding that gives every window
        # that `max_words` words would give.
        seen = 1 + config.num_layers * (config.kernel_size - 1) + (config.num_layers - 1) * (config.pool_size - 1)

        def padded(length: int) -> int:
            return max(seen, min(config.max_words, length + seen))

        # The last words of each text, at the end of its row; what is left out goes to column 0, which is cut off.
        width = padded(int(lengths.max())) if len(lengths) else seen
        from_end = mask.flip(1).cumsum(1).flip(1)
        columns = torch.where(mask & (from_end <= config.max_words), width + 1 - from_end, 0)
        words = input_ids.new_zeros(len(input_ids), width + 1).scatter_(1, columns, input_ids)[:, 1:]

        order = lengths.argsort(stable=True)
        pooled = []
        for rows in order.split(_TEXTS_AT_A_TIME if words.device.type == "cpu" else max(1, len(order))):
            width = padded(int(lengths[rows[-1]])) if len(rows) else seen
            is_word = torch.arange(width, device=words.device) >= width - lengths[rows, None]
            hidden = self.embeddings(words[rows, -width:])
            hidden = (hidden * is_word[..., None]).transpose(1, 2).unsqueeze(2)
            for i, convolution in enumerate(self.convolutions):
                assert isinstance(convolution, nn.Conv1d)
                hidden = F.conv2d(hidden, convolution.weight.unsqueeze(2), convolution.bias)
                if i + 1 < len(self.convolutions):
                    hidden = F.max_pool2d(hidden, (1, config.pool_size), stride=1)
                else:
                    hidden = hidden.flatten(2).amax(2)
                hidden = F.relu(hidden)
            pooled.append(hidden)
        return torch.cat(pooled)[order.argsort()]

    def _strided(self, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the globally pooled activations, (batch, num_filters)."""
        # Pad to a whole number of pooling windows at every layer, at least one.
        multiple = self.config.pool_size ** (len(self.convolutions) - 1)
        missing = -input_ids.shape[1] % multiple if input_ids.shape[1] else multiple
        input_ids, mask = F.pad(input_ids, (0, missing)), F.pad(mask, (0, missing))
        hidden = self.embeddings(input_ids).transpose(1, 2).unsqueeze(2)
        mask = mask[:, None, None].to(hidden.dtype)
        hidden = hidden * mask
        for i, convolution in enumerate(self.convolutions):
            # Masked positions are 0 and do not change a max-pool followed by a ReLU. Here the ReLU after the pool has
            # fewer elements.
            assert isinstance(convolution, nn.Conv1d)
            padding = (0, convolution.kernel_size[0] // 2)
            hidden = F.conv2d(hidden, convolution.weight.unsqueeze(2), convolution.bias, padding=padding)
            hidden.mul_(mask.to(hidden.dtype))
            window = (1, self.config.pool_size if i + 1 < len(self.convolutions) else hidden.shape[-1])
            hidden, mask = F.relu(F.max_pool2d(hidden, window)), F.max_pool2d(mask, window)
        return hidden.flatten(1)


AutoConfig.register("gp_cnn", GPCNNConfig)
AutoModelForSequenceClassification.register(GPCNNConfig, GPCNNForSequenceClassification)
