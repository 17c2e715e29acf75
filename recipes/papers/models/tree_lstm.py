"""Binary constituency Tree-LSTM for sentiment classification [Tai et al., ACL 2015, sections 3.2 and 4.1], which
Mukhoti et al. (NeurIPS 2020) calibrate on the Stanford Sentiment Treebank."""

from types import SimpleNamespace
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import can_return_tuple


@strict
class TreeLSTMConfig(PreTrainedConfig):
    """Configuration of a [`TreeLSTMForSequenceClassification`]. The defaults are those of Tai et al.

    Args:
        vocab_size: number of embeddings.
        embedding_size: width of a word vector.
        memory_size: width of a node's memory cell and hidden state.
        dropout: dropout probability of the head's input.
        output_gate: whether inner nodes have an output gate. The code of Tai et al. has no such gate: h = tanh(c).
        neutral_class: whether the head has one extra class, the last one, for neutral nodes in training. The logits of
            the roots leave this class out.
        pad_token_id: id of the padding token, whose vector stays zero; None if there is no such token.
    """

    model_type = "tree_lstm"

    vocab_size: int = 20_000
    embedding_size: int = 300
    memory_size: int = 150
    dropout: float | int = 0.5
    output_gate: bool = True
    neutral_class: bool = False
    pad_token_id: int | None = 0


class _Compose(torch.autograd.Function):
    """Computes the hidden states of all nodes from those of the leaves, height by height.

    The T nodes are sorted by height, so that the L leaves come first. M is the memory size. Autograd would keep a
    gradient of all T nodes for each height. Here, all states are in one buffer, all gradients of states are in
    another, and the gradient of the weight is one matrix product over all nodes.

    The inputs are the memory cells and the hidden states of the leaves, (L, M) each; the weight (G M, 2 M) and the
    bias (G M,) of the G gates, in the order update, input, left forget, right forget, and, if there is one, output;
    `children` (T - L, 2), the indices of the children of inner nodes; and `sizes`, the number of nodes at each height
    from 1 up. The result is the hidden states (T + 1, M), where the last row is zeros.
    """

    @staticmethod
    def forward(
        ctx: Any,
        leaf_cell: Tensor,
        leaf_hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        children: Tensor,
        sizes: list[int],
    ) -> Tensor:
        (num_leaves, width), num_inner = leaf_hidden.shape, len(children)
        hidden = leaf_hidden.new_empty(num_leaves + num_inner + 1, width)
        hidden[:num_leaves] = leaf_hidden
        hidden[-1] = 0
        cell = leaf_cell.new_empty(num_leaves + num_inner, width)
        cell[:num_leaves] = leaf_cell
        num_gates = len(weight) // width
        gates = hidden.new_empty(num_inner, num_gates, width)
        start = 0
        for size in sizes:
            inner, start = slice(start, start + size), start + size
            rows, pairs = slice(num_leaves + inner.start, num_leaves + inner.stop), children[inner].flatten()
            below = hidden.index_select(0, pairs).view(size, 2 * width)
            linear = torch.addmm(bias, below.to(weight.dtype), weight.t()).to(hidden.dtype)
            linear = linear.view(size, num_gates, width)
            update = torch.tanh(linear[:, 0], out=gates[inner, 0])
            input_, _, _, *output = torch.sigmoid(linear[:, 1:], out=gates[inner, 1:]).unbind(1)
            remembered = cell.index_select(0, pairs).view(size, 2, width).mul_(gates[inner, 2:4])
            memory = torch.sum(remembered, dim=1, out=cell[rows]).addcmul_(input_, update)
            torch.tanh(memory, out=hidden[rows])
            for gate in output:
                hidden[rows] *= gate
        ctx.save_for_backward(hidden, cell, gates, weight, children)
        ctx.sizes = sizes
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, cell, gates, weight, children = ctx.saved_tensors
        num_inner, _, width = gates.shape
        num_leaves = len(cell) - num_inner
        grad_hidden, grad_cell = grad.clone(), torch.zeros_like(cell)
        update, input_, _, _, *output = gates.unbind(1)
        forget = gates[:, 2:4]
        # Factors of the gates' gradients, for all nodes at once. They are multiplied below by the gradient of the
        # node's memory cell or, for the output gate, of its hidden state.
        tanh = cell[num_leaves:].tanh()
        cell_of_hidden = 1 - tanh**2
        for gate in output:
            cell_of_hidden *= gate
        slopes = torch.empty_like(gates)
        torch.mul(gates[:, 1:], 1 - gates[:, 1:], out=slopes[:, 1:])
        torch.mul(input_, 1 - update**2, out=slopes[:, 0])
        slopes[:, 1] *= update
        slopes[:, 2:4] *= cell.index_select(0, children.flatten()).view(num_inner, 2, width)
        slopes[:, 4:] *= tanh.unsqueeze(1)
        stop = num_inner
        for size in reversed(ctx.sizes):
            inner, stop = slice(stop - size, stop), stop - size
            rows, pairs = slice(num_leaves + inner.start, num_leaves + inner.stop), children[inner].flatten()
            memory = grad_cell[rows].addcmul_(grad_hidden[rows], cell_of_hidden[inner]).unsqueeze(1)
            slopes[inner, :4] *= memory
            slopes[inner, 4:] *= grad_hidden[rows].unsqueeze(1)
            below = torch.mm(slopes[inner].flatten(1).to(weight.dtype), weight)
            grad_hidden.index_add_(0, pairs, below.to(grad.dtype).view(2 * size, width))
            # Each node has only one parent, so its gradient is now complete.
            grad_cell.index_copy_(0, pairs, (memory * forget[inner]).view(2 * size, width))
        grad_gates = slopes.flatten(1).to(weight.dtype)  # `slopes` now holds the gradients
        below = hidden.index_select(0, children.flatten()).view(num_inner, 2 * width).to(weight.dtype)
        grad_weight, grad_bias = grad_gates.t() @ below, grad_gates.sum(0)
        return grad_cell[:num_leaves], grad_hidden[:num_leaves], grad_weight, grad_bias, None, None


class TreeLSTMForSequenceClassification(PreTrainedModel):
    """Embedding → memory cell and hidden state of each leaf, then of each node from its two children → linear.

    A leaf with the word vector x has the memory cell c = W x + b and the hidden state h = σ(W' x + b') tanh(c). An
    inner node has c = i u + f_l c_l + f_r c_r and h = o tanh(c), or h = tanh(c) without an output gate. The gates i,
    f_l, f_r, and o are sigmoids, and the update u is the tanh, of linear functions of [h_l; h_r], the hidden states of
    the two children. Every node can be classified; the head is `classifier`. All trees of a batch are computed
    together, height by height.
    """

    config_class = TreeLSTMConfig
    main_input_name = "input_ids"
    _input_embed_layer = "embeddings"  # where Transformers finds the word vectors

    def __init__(self, config: TreeLSTMConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.leaf = nn.Linear(config.embedding_size, 2 * config.memory_size)
        self.composer = nn.Linear(2 * config.memory_size, (4 + config.output_gate) * config.memory_size)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.memory_size, config.num_labels + config.neutral_class)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # As in the code of Tai et al., where each child has its own linear layers.
        if isinstance(module, nn.Linear):
            fan_in = self.config.memory_size if module is self.composer else module.in_features
            init.uniform_(module.weight, -(fan_in**-0.5), fan_in**-0.5)
            init.uniform_(module.bias, -(fan_in**-0.5), fan_in**-0.5)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -0.05, 0.05)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])

    @property
    def dummy_inputs(self) -> dict[str, Tensor]:
        """Two trees, each of a root with two words."""
        trees = {"left": [0, 0, 0], "right": [0, 0, 1], "height": [0, 0, 1]}
        words = torch.tensor([[1, 2], [3, 4]]) % self.config.vocab_size
        return {name: torch.tensor([values, values]) for name, values in trees.items()} | {"input_ids": words}

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        left: Tensor,
        right: Tensor,
        height: Tensor,
        nodes: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify the roots or other nodes of the trees in a batch of `TreeCollator`.

        Args:
            input_ids: int64, (batch, words), the ids of the leaves' words from left to right, then padding.
            left, right: int64, (batch, nodes), the indices of each node's children within its tree; ignored for leaves
                and padding. Leaves are numbered from left to right, and each node has one parent.
            height: int64, (batch, nodes): 0 for a leaf, 1 plus the larger height of the two children for an inner
                node, and -1 for padding.
            nodes: int64, (batch,) or (batch, any number), the nodes to classify; by default the root of each tree.
            labels: int64, (batch,) or the shape of `nodes`, with -100 where there is no label. If labels are given,
                the output has the cross-entropy that Transformers' classifiers compute.

        Returns:
            `SequenceClassifierOutput` with `logits`, whose shape is that of `nodes` followed by the number of classes,
            and `loss` if `labels` are given. The logits of padding are the bias of the head.
        """
        hidden, places = self._hidden_states(input_ids, left, right, height)
        num_classes = self.num_labels if nodes is None else self.classifier.out_features
        nodes = height.argmax(1) if nodes is None else nodes
        places = places.gather(1, nodes.view(len(nodes), -1))
        # Indexing comes last because logits are narrower than hidden states.
        logits = self.classifier(self.dropout(hidden)).index_select(0, places.flatten()).view(*nodes.shape, -1)
        logits = logits[..., :num_classes]
        loss = None
        if labels is not None:
            kind = SimpleNamespace(num_labels=num_classes, problem_type="single_label_classification")
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=kind, **kwargs)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    def _hidden_states(self, input_ids: Tensor, left: Tensor, right: Tensor, height: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the hidden states of all nodes, sorted by height, and the row of each node in these states."""
        batch_size, num_nodes = height.shape
        # The only synchronization with a GPU: the number of nodes at each height.
        num_padding, num_leaves, *sizes = (height.flatten() + 1).bincount(minlength=2).tolist()
        order = height.flatten().argsort(stable=True)[num_padding:]
        places = torch.full_like(left.flatten(), len(order))  # padding points to the zeros in the last row
        places[order] = torch.arange(len(order), device=order.device)

        words = (height == 0).cumsum(1).sub_(1).clamp_(min=0)
        words = input_ids.gather(1, words).flatten().index_select(0, order[:num_leaves])
        weight: Tensor = self.composer.weight
        bias: Tensor = self.composer.bias
        cell, output = self.leaf(self.embeddings(words)).to(weight.dtype).chunk(2, dim=1)
        hidden = output.sigmoid() * cell.tanh()

        inner = order[num_leaves:]
        first = (inner // num_nodes) * num_nodes  # index of the tree's node 0
        children = torch.stack([first + side.flatten()[inner] for side in (left, right)], dim=1)
        if torch.is_autocast_enabled(height.device.type):
            # Matrix products are in half precision, as under autocast; states and their sums are not.
            dtype = torch.get_autocast_dtype(height.device.type)
            weight, bias = weight.to(dtype), bias.to(dtype)
        hidden = _Compose.apply(cell, hidden, weight, bias, places[children], sizes)
        return hidden, places.view(batch_size, num_nodes)


AutoConfig.register("tree_lstm", TreeLSTMConfig)
AutoModelForSequenceClassification.register(TreeLSTMConfig, TreeLSTMForSequenceClassification)
