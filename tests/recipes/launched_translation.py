"""The translation recipe as a module, and a script that runs it under whatever launched it.

launched_translation.py ARGV... [--kill_at STEP]: each ARGV a command line as JSON, one run after the other.
"""

import argparse
import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

from transformers import TrainerCallback

sys.path.insert(0, str(Path(__file__).parents[1] / "trainer"))
from processes import leave

PATH = Path(__file__).parents[2] / "recipes" / "translation.py"


def import_recipe():
    spec = importlib.util.spec_from_file_location("translation_recipe", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


recipe = import_recipe()


class KillAt(TrainerCallback):
    """SIGKILL: nothing is flushed, no handler runs."""

    def __init__(self, step: int):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("argv", type=json.loads, nargs="+")
    parser.add_argument("--kill_at", type=int)
    options = parser.parse_args()
    if options.kill_at:

        class KilledTrainer(recipe.FocalSeq2SeqTrainer):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs, callbacks=[KillAt(options.kill_at)])

        recipe.FocalSeq2SeqTrainer = KilledTrainer
    for argv in options.argv:
        recipe.main(argv)
    leave()


if __name__ == "__main__":
    main()
