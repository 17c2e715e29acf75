"""The sums of auxiliary losses of which only some of the processes have terms, in as many as this is started in."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from processes import leave

from hf_focal.trainer.auxiliary_loss import AuxiliaryLoss

if __name__ == "__main__":
    accelerator, found = Accelerator(cpu=True), {}
    for name, has_terms in (("some", accelerator.is_main_process), ("none", False)):
        for method in ("mean", "state"):
            loss = AuxiliaryLoss(torch.nn.Identity())
            loss.running = torch.tensor([3.0, 0.5]) if has_terms else None
            found[f"{method} of {name}"] = getattr(loss, method)(accelerator)
    (Path(sys.argv[1]) / f"{accelerator.process_index}.json").write_text(json.dumps(found), encoding="utf-8")
    leave()
