"""Ask a server for the calibrated probabilities of a text's labels, with the requests of openai.json in this folder.

This needs only Python. In openai.json, this program is "python", with the columns of its prompt.
"""

import json
import math
import urllib.request
from collections.abc import Mapping
from typing import Any

URL = "http://localhost:8000/v1/completions"


def log_probabilities(saved: Mapping[str, Any], values: Mapping[str, str], url: str) -> dict[str, float]:
    """Ask a server, and return label -> log-probability; `values` has a text for each column in the prompt."""
    body = saved["request"] | {"prompt": saved["prompt"].format(**values)}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        found = json.load(reply)["choices"][0]["logprobs"]
    if found.get("content"):  # of llama.cpp
        top = {token["token"]: token["logprob"] for token in found["content"][0]["top_logprobs"]}
    else:
        top = found["top_logprobs"][0]
    return {saved["tokens"][token]: value for token, value in top.items() if token in saved["tokens"]}


def corrected_probabilities(saved: Mapping[str, Any], log_p: Mapping[str, float]) -> dict[str, float]:
    """Return label -> calibrated probability."""
    if missing := [label for label in saved["labels"] if label not in log_p]:
        raise ValueError(f"the server must answer for all labels, got none for {missing}: ask it for more logprobs")
    z = [
        sum(a * log_p[label] for a, label in zip(row, saved["labels"], strict=True)) + b
        for row, b in zip(saved["A"], saved["b"], strict=True)
    ]
    weights = [math.exp(value - max(z)) for value in z]
    return {label: weight / sum(weights) for label, weight in zip(saved["labels"], weights, strict=True)}


if __name__ == "__main__":
    with open("openai.json", encoding="utf-8") as file:
        openai = json.load(file)
    print(corrected_probabilities(openai, log_probabilities(openai, {"text": "A text to classify."}, URL)))
