"""The image recipe as a module, and a script that runs it under whatever launched it.

launched_images.py FOLDER NUM_PROCESSES ARGV: ARGV a command line as JSON. Each process writes the boxes that it cut in
each epoch to FOLDER.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "helpers"))
from processes import leave
from recipe_modules import import_recipe

recipe = import_recipe("image_classification")


class BoxesTrainer(recipe.ImageClassifierTrainer):
    """Keeps the boxes of each batch that it trains on, by epoch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cut = {}
        BoxesTrainer.latest = self

    def training_step(self, model, inputs, *args, **kwargs):
        # A sample that only fills up the last global batch has its label ignored.
        known = inputs["labels"] != -100
        boxes = self.cut.setdefault(int(self.state.epoch), [])
        boxes += inputs["boxes"][known].tolist()
        return super().training_step(model, inputs, *args, **kwargs)


def main(folder: Path, num_processes: int, argv: list[str]) -> None:
    recipe.ImageClassifierTrainer = BoxesTrainer
    recipe.main(argv)
    trainer = BoxesTrainer.latest
    assert trainer.args.world_size == num_processes, trainer.args.world_size
    path = folder / f"boxes_{trainer.args.process_index}.json"
    path.write_text(json.dumps(list(trainer.cut.values())), encoding="utf-8")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
