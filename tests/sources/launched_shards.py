"""Evaluates with shards of two batches: launched_shards.py MODEL DATA FOLDER RESULT KILL_AFTER OPTIONS.

The process is killed when it has written KILL_AFTER shards, unless this is 0.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from processes import leave

from hf_focal import FocalTrainingArguments, evaluate_model
from hf_focal.sources import model, score_shards

# Without it, Trainer looks for GPUs, and stays alone where there are none.
model.FocalTrainingArguments = partial(FocalTrainingArguments, use_cpu=True)
score_shards._BATCHES = 2
folder, kill_after, written = sys.argv[3], int(sys.argv[5]), []
write = score_shards.ScoreShards.write


def counted(shards, block, scores, rows):
    write(shards, block, scores, rows)
    written.append(block)
    if len(written) == kill_after:
        os.kill(os.getpid(), signal.SIGKILL)


score_shards.ScoreShards.write = counted
result = evaluate_model(sys.argv[1], sys.argv[2], batch_size=7, save_scores=folder, **json.loads(sys.argv[6]))
if int(os.environ.get("RANK", 0)) == 0:
    record = {"pre": result.pre, "written": written, "processes": result.data.num_processes}
    Path(sys.argv[4]).write_text(json.dumps(record), encoding="utf-8")
leave()
