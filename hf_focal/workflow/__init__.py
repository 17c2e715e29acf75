"""The way from scores to a result and a calibrated model: `evaluate` and `calibrate`, whatever gives the scores.

`evaluate_model` and `calibrate_model` are the same for a trained model, `evaluate_scores` and `calibrate_scores` for
tables of scores. None of these imports Transformers until a model is loaded.
"""

from .evaluate_calibrate import calibrate, evaluate
from .models import calibrate_model, evaluate_model
from .score_tables import calibrate_scores, evaluate_scores

__all__ = ["calibrate", "calibrate_model", "calibrate_scores", "evaluate", "evaluate_model", "evaluate_scores"]
