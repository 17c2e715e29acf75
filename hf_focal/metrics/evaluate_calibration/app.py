"""Page of a Hugging Face Space that computes the expected calibration error."""

from pathlib import Path

import evaluate
from evaluate.utils import launch_gradio_widget

launch_gradio_widget(evaluate.load(str(Path(__file__).with_name("evaluate_calibration.py")), "ece"))
