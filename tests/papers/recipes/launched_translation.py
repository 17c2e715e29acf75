"""The translation recipe as a module, and a script that runs it under whatever launched it.

launched_translation.py ARGV... [--kill_at STEP]: each ARGV a command line as JSON, one run after the other.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))
from processes import KillAt, leave
from recipe_modules import import_recipe

recipe = import_recipe("translation")


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
