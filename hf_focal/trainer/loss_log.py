"""Mean training loss between logs, continued from a checkpoint."""

from typing import Any

from accelerate import Accelerator
from torch import Tensor


class LoggedLoss:
    """Sums the loss of every step over all processes; Trainer's own sums start at zero when training is resumed.

    All processes must make the same calls.
    """

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.begin(0)

    def begin(self, step: int) -> None:
        """Start at zero after `step` optimizer steps."""
        self.first_step = self.last_log = step
        self.total = 0.0  # up to the last log
        self.pending: Tensor | float = 0.0  # since the last log

    def add(self, loss: Tensor) -> None:
        """Add the loss of a micro-batch."""
        self.pending = self.pending + loss

    def mean_since_last_log(self, step: int) -> float:
        """Mean loss of the steps from the last log to `step`, which becomes the last log."""
        pending, steps = self._reduced(), step - self.last_log
        self.total, self.pending, self.last_log = self.total + pending, 0.0, step
        return pending / steps

    def mean(self, step: int) -> float:
        """Mean loss of all steps up to `step`."""
        return (self.total + self._reduced()) / max(step - self.first_step, 1)

    def _reduced(self) -> float:
        if isinstance(self.pending, Tensor):
            self.pending = float(self.accelerator.reduce(self.pending, "mean"))
        return self.pending

    def state_dict(self) -> dict[str, Any]:
        """The sums as JSON values."""
        # Reduced also in the training that goes on, so that a resumed one rounds alike.
        pending = self._reduced()
        return {"first_step": self.first_step, "last_log": self.last_log, "total": self.total, "pending": pending}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.first_step, self.last_log = state["first_step"], state["last_log"]
        self.total, self.pending = state["total"], state["pending"]
