"""The training loss that is logged, which a resumed run continues."""

from dataclasses import dataclass

from accelerate import Accelerator
from torch import Tensor


@dataclass
class LoggedLoss:
    """Sums of the losses of all steps, kept because Trainer's own sums restart at 0 in a resumed run. All processes
    must call each method."""

    first_step: int  # the number of steps before the first one that is summed
    last_log: int  # the step of the last log
    total: float = 0.0  # up to the last log
    pending: Tensor | float = 0.0  # since the last log

    def reduce(self, accelerator: Accelerator) -> float:
        """Replace `pending` by its average over all processes, a float, and return this average."""
        if isinstance(self.pending, Tensor):
            self.pending = float(accelerator.reduce(self.pending, "mean"))
        return self.pending

    def mean_since_last_log(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of the steps since the last log, and record `step` as the step of the last log."""
        pending, steps = self.reduce(accelerator), step - self.last_log
        self.total, self.pending, self.last_log = self.total + pending, 0.0, step
        return pending / steps

    def mean(self, step: int, accelerator: Accelerator) -> float:
        """Return the mean loss of all steps after `first_step`, up to `step`."""
        return (self.total + self.reduce(accelerator)) / max(step - self.first_step, 1)
