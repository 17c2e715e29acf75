"""Whether compiled code would make the losses of small batches faster, and whether a training step would show it.

    python -m benchmarks.speed.small_batches [--json FILE]

Measures focal loss, forward and backward, at 32 × 2 and 128 × 10 in CPU time of one thread, relative to
`F.cross_entropy` in the same run: composed of PyTorch's operations, ours, ours in `torch.compile`, and one C++
autograd function with the same formula. Each is compared with float64 where samples are confident. Then the script
measures a training step of a small encoder with each loss. It needs a C++ compiler and ninja; the C++ code is compiled
for this run only.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional as F
from torch.utils.cpp_extension import load_inline
from transformers import BertConfig, BertForSequenceClassification

from benchmarks.common.figures import machine, parse_options, script_options, shown, write_figures
from benchmarks.common.lines import SmallBatchLine, StepLine
from benchmarks.common.loss_functions import REFERENCE, Loss, composed_focal, differentiate, random_batch
from benchmarks.common.timing import median_ratio, spread, times_in_turn
from hf_focal.losses import build_loss

GAMMA = 3.0
SHAPES = [(32, 2), (128, 10)]

# One pass per row. 1 - p is the sum over the other classes, so that no digits are lost as p approaches 1.
CPP = """
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Focal : torch::autograd::Function<Focal> {
  static at::Tensor forward(AutogradContext* context, at::Tensor logits, at::Tensor labels, double gamma) {
    TORCH_CHECK(logits.dim() == 2 && logits.scalar_type() == at::kFloat && labels.scalar_type() == at::kLong);
    const auto z = logits.contiguous();
    auto gradient = at::empty_like(z);
    const int64_t rows = z.size(0), classes = z.size(1);
    const float* logit = z.data_ptr<float>();
    float* slope = gradient.data_ptr<float>();
    const int64_t* label = labels.data_ptr<int64_t>();
    double total = 0;
    for (int64_t row = 0; row < rows; ++row, logit += classes, slope += classes) {
      const int64_t target = label[row];
      TORCH_CHECK(target >= 0 && target < classes);
      float top = logit[0];
      for (int64_t k = 1; k < classes; ++k) top = std::max(top, logit[k]);
      float others = 0;
      for (int64_t k = 0; k < classes; ++k) {
        slope[k] = std::exp(logit[k] - top);
        if (k != target) others += slope[k];
      }
      const float sum = others + slope[target], q = others / sum, p = slope[target] / sum;
      const bool first = logit[target] == top;
      const float loss = first ? std::log1p(others / slope[target]) : std::log(sum) - (logit[target] - top);
      const float weight = std::pow(q, gamma);
      total += weight * loss;
      // dL/dz_k = p_k · g for the other classes and -q · g for the label, where g = q^γ + γ q^(γ-1) p loss.
      const float g = weight + gamma * std::pow(q, gamma - 1) * p * loss;
      for (int64_t k = 0; k < classes; ++k) slope[k] *= g / (sum * rows);
      slope[target] = -q * g / rows;
    }
    context->save_for_backward({gradient});
    return at::scalar_tensor(total / rows, z.options());
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {context->get_saved_variables()[0] * gradients[0], at::Tensor(), at::Tensor()};
  }
};

at::Tensor focal(const at::Tensor& logits, const at::Tensor& labels, double gamma) {
  return Focal::apply(logits, labels, gamma);
}
"""


def implementations() -> dict[str, Loss]:
    extension = load_inline("focal_loss_of_small_batches", CPP, functions=["focal"], extra_cflags=["-O3"])
    ours = build_loss(f"focal:gamma={GAMMA:g}")
    return {
        REFERENCE: F.cross_entropy,
        "focal of F.cross_entropy": partial(composed_focal, gamma=GAMMA),
        "ours": ours,
        "ours, torch.compile": torch.compile(ours, dynamic=False),
        "ours, torch.compile(mode='reduce-overhead')": torch.compile(ours, mode="reduce-overhead", dynamic=False),
        "C++ autograd function": lambda logits, labels: extension.focal(logits, labels, GAMMA),
    }


def relative_error(loss: Loss) -> float:
    """Return the largest relative error of loss and gradient, against float64, where 1 - p is 1e-3 to 1e-7."""
    worst = 0.0
    for lead in (7.0, 10.0, 13.0, 16.0):
        logits = torch.tensor([[lead, 0.0]], requires_grad=True)
        labels = torch.zeros(1, dtype=torch.int64)
        value = loss(logits, labels)
        (gradient,) = torch.autograd.grad(value, logits)
        double = logits.detach().double().requires_grad_()
        log_p = F.log_softmax(double, -1)
        exact = -(log_p[0, 1].exp() ** GAMMA) * log_p[0, 0]
        (exact_gradient,) = torch.autograd.grad(exact, double)
        for measured, expected in ((value, exact), (gradient, exact_gradient)):
            worst = max(worst, float(((measured.double() - expected) / expected).abs().max()))
    return worst


def measure_losses(losses: dict[str, Loss], runs: int) -> Iterator[SmallBatchLine]:
    errors = {name: relative_error(loss) for name, loss in losses.items() if name != REFERENCE}
    for rows, classes in SHAPES:
        batch = random_batch(rows, classes, torch.float32)
        steps = {name: partial(differentiate, loss, *batch) for name, loss in losses.items()}
        times = [times_in_turn(steps, 60, repeat=True) for _ in range(runs)]
        for name in losses:
            ratios = spread([median_ratio(run[name].cpu, run[REFERENCE].cpu) for run in times])
            line: SmallBatchLine = {"rows": rows, "classes": classes, "name": name, **ratios}
            yield {**line, "relative_error": errors[name]} if name in errors else line


def training_steps(losses: dict[str, Loss], rounds: int) -> list[StepLine]:
    """Measure a step of a small encoder (6 layers, 384 wide, 32 texts of 64 tokens, 2 classes) with each loss."""
    torch.manual_seed(0)
    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(1000, 20000, (32, 64))
    labels = torch.randint(2, (32,))

    def train(loss: Loss) -> None:
        optimizer.zero_grad()
        loss(model(input_ids=tokens).logits, labels).backward()
        optimizer.step()

    times = times_in_turn({name: partial(train, loss) for name, loss in losses.items()}, rounds)
    return [
        {"name": name, "ratio": median_ratio(of.cpu, times[REFERENCE].cpu), "milliseconds": 1e3 * min(of.cpu)}
        for name, of in times.items()
    ]


def main() -> None:
    options = parse_options(script_options(__doc__, rounds=5, threads=False))
    torch.set_num_threads(1)
    losses = implementations()
    measured = {"machine": machine(), "loss": shown(measure_losses(losses, options.rounds))}
    write_figures(options.json, measured | {"training_step": shown(training_steps(losses, rounds=10))})


if __name__ == "__main__":
    main()
