"""Write the sets in the format of CalArena (arXiv 2605.30188), so that its scripts can run on them.

    pip install h5py
    python -m benchmarks.text_logits.export_calarena out/calarena

writes `text-binary.h5` and `text-multiclass.h5`: groups dataset/model with the arrays probas_cal, labels_cal,
probas_test, and labels_test (two classes: the probability of label 1), and for each a table `…-experiments.csv`. A
dataset is a task, or a task and its other test set; a model is all else in a set's name.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import torch

from benchmarks.text_logits.load import load, sets


def probabilities(logits: np.ndarray) -> np.ndarray:
    values = torch.from_numpy(logits).double().softmax(1).float().numpy()
    return values[:, 1] if values.shape[1] == 2 else values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the files")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    table = sets()
    for kind, part in (("binary", table[table["classes"] == 2]), ("multiclass", table[table["classes"] > 2])):
        experiments = []
        with h5py.File(folder / f"text-{kind}.h5", "w") as file:
            file.attrs.update({"source": "text", "problem_type": kind})
            for name, row in part.iterrows():
                other = f"-to_{row['shift']}" if name.endswith(f"-to_{row['shift']}") else ""
                dataset = row["task"] + other
                model = name.removesuffix(other).replace(f"-{row['task']}", "", 1)
                logits = load(name)
                arrays = {
                    "probas_cal": probabilities(logits.validation_logits),
                    "labels_cal": logits.validation_labels.astype(np.int32),
                    "probas_test": probabilities(logits.test_logits),
                    "labels_test": logits.test_labels.astype(np.int32),
                }
                group = file.create_group(f"{dataset}/{model}")
                for key, values in arrays.items():
                    group.create_dataset(key, data=values, compression="gzip")
                line = {"dataset": dataset, "model": model}
                line |= {"cal_size": row["validation_rows"], "test_size": row["test_rows"]}
                experiments.append(line | ({} if kind == "binary" else {"n_classes": row["classes"]}))
        pd.DataFrame(experiments).to_csv(folder / f"text-{kind}-experiments.csv", index=False)
        print(f"text-{kind}: {len(experiments)} experiments")


if __name__ == "__main__":
    main()
