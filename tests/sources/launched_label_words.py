"""Calibrates label words in one or several processes: launched_label_words.py CASE OUTPUT LABELS."""

import json
import sys
from functools import partial
from pathlib import Path

from label_word_models import LABELS, PROMPT
from processes import leave

from hf_focal import FocalTrainingArguments, calibrate_model
from hf_focal.sources import model

# Without it, Trainer looks for GPUs, and stays alone where there are none.
model.FocalTrainingArguments = partial(FocalTrainingArguments, use_cpu=True)
case, output, labels = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
output.mkdir(exist_ok=True)
names = labels.split(",")
result = calibrate_model(
    case / "model",
    str(case / "held_out.csv"),
    test_dataset=str(case / "test.csv"),
    labels=labels,
    prompt=PROMPT,
    label_map=dict(zip(map(str.upper, LABELS), names, strict=True)),
    method="bias" if labels == ",".join(LABELS) else "temperature",
    batch_size=7,
    save_scores=output / "scores.parquet",
    output=output / "out",
)
if (output / "out" / "correction.json").exists():
    record = {"processes": result.data.num_processes, "nll": result.post["nll"]}
    (output / "result.json").write_text(json.dumps(record), encoding="utf-8")
leave()
