"""Requests to servers that return log-probabilities from before or after the bias and the temperature."""

import ast
import contextlib
import io
import json
import math
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
from label_word_models import LABELS, PROMPT, label_tokenizer, language_model

from hf_focal import Correction
from hf_focal.choices import label_scores
from hf_focal.choices.label_words import LabelWords
from hf_focal.choices.openai_client import corrected_probabilities, log_probabilities
from hf_focal.choices.openai_requests import OpenAIFile, openai_requests, vllm_classifier

TEXT = "a good film"
B = [0.3, -1.2, 0.9]
CORRECTIONS = {
    "none": Correction(),
    "temperature": Correction.temperature(2.5),
    "bias": Correction.bias(1.7, B),
    "vector": Correction.vector([2.0, 0.5, 1.0], B),
    "matrix": Correction.matrix([[1.0, 0.2, 0.0], [0.3, 2.0, -0.1], [0.0, 0.0, 0.4]], B),
}


class Server(HTTPServer):
    """A fake of the protocol: it computes what real servers return, as vLLM ("token ids"), OpenAI, or llama.cpp."""

    def __init__(self, model, tokenizer, processed: bool, form: str):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model, self.tokenizer, self.processed, self.form = model, tokenizer, processed, form
        self.bodies: list[dict] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/completions"

    @torch.no_grad()
    def answer(self, body: dict) -> dict:
        self.bodies.append(body)
        ids = self.tokenizer(body["prompt"])["input_ids"]
        raw = self.model(torch.tensor([ids])).logits[0, -1].float()
        changed = raw.clone()
        for number, bias in body.get("logit_bias", {}).items():
            assert -100 <= bias <= 100
            changed[int(number)] += bias
        changed = (changed / body.get("temperature", 0.8)).log_softmax(-1)
        drawn = int(torch.multinomial(changed.exp(), 1))
        log_p = changed if self.processed else raw.log_softmax(-1)
        top = log_p.topk(body.get("logprobs", 0)).indices.tolist()
        if self.form == "token ids":
            top += [number for number in body.get("logprob_token_ids", []) if number not in top]
            names = {number: f"token_id:{number}" for number in top}
        else:
            names = {number: self.tokenizer.decode([number]) for number in top}
        choice: dict = {"text": self.tokenizer.decode([drawn]), "logprobs": None}
        if top and self.form == "llama.cpp":
            found = [{"id": number, "token": names[number], "logprob": float(log_p[number])} for number in top]
            choice["logprobs"] = {"content": [{"top_logprobs": found}]}
        elif top:
            choice["logprobs"] = {"top_logprobs": [{names[number]: float(log_p[number]) for number in top}]}
        return {"choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        reply = json.dumps(self.server.answer(body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def tokenizer():
    return label_tokenizer()


@pytest.fixture
def serve(tokenizer):
    servers = []

    def start(model, processed, form) -> Server:
        servers.append(Server(model, tokenizer, processed, form))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def asked_in_python(saved: Mapping, folder, url: str, text: str = TEXT) -> dict[str, float]:
    """The probabilities that the Python code in the file prints."""
    (folder / "openai.json").write_text(json.dumps(saved), encoding="utf-8")
    code = saved["python"].replace("http://localhost:8000/v1/completions", url)
    code = code.replace("'A text to classify.'", repr(text))
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {"__name__": "__main__"})
    return ast.literal_eval(printed.getvalue())


@pytest.mark.parametrize("form", ["token ids", "texts", "llama.cpp"])
@pytest.mark.parametrize("processed", [False, True], ids=["raw", "processed"])
def test_replies_become_the_corrected_probabilities(serve, tokenizer, tmp_path, processed, form):
    model = language_model("llama", tokenizer)
    server = serve(model, processed, form)
    scores = label_scores(model, tokenizer, [{"text": TEXT}], LABELS, PROMPT)
    for name, correction in CORRECTIONS.items():
        saved = openai_requests(LabelWords(tokenizer, LABELS, PROMPT), correction, "model")
        expected = correction.apply(scores)[0].softmax(0).tolist()
        if not processed and form != "token ids":
            saved["request"]["logprobs"] = len(tokenizer)  # the random model's labels may be among the least probable
        found = asked_in_python(json.loads(json.dumps(saved)), tmp_path, server.url)
        assert list(found) == [*LABELS], name
        assert list(found.values()) == pytest.approx(expected, abs=1e-5), name
        answer = saved["answer_request"]
        assert (answer is None) == (saved["temperature"] is None) == (name in ("vector", "matrix"))
        if answer is not None:
            reply = server.answer(answer | {"prompt": saved["prompt"].format(text=TEXT), "logprobs": 20})
            if processed and form == "texts":  # what it returns is what it draws from
                top = reply["choices"][0]["logprobs"]["top_logprobs"][0]
                assert [math.exp(top[f" {label}"]) for label in LABELS] == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_a_server_draws_the_labels_with_their_calibrated_probabilities(serve, tokenizer):
    model, correction = language_model("llama", tokenizer), CORRECTIONS["bias"]
    saved = openai_requests(LabelWords(tokenizer, LABELS, PROMPT), correction, "model")
    server = serve(model, False, "texts")
    torch.manual_seed(0)
    body = saved["answer_request"] | {"prompt": saved["prompt"].format(text=TEXT)}
    drawn = Counter(server.answer(body)["choices"][0]["text"].strip() for _ in range(1000))
    expected = correction.apply(label_scores(model, tokenizer, [{"text": TEXT}], LABELS, PROMPT))[0].softmax(0)
    assert [drawn[label] / 1000 for label in LABELS] == pytest.approx(expected.tolist(), abs=0.05)


def test_a_label_that_a_server_does_not_return_is_an_error(serve, tokenizer, tmp_path):
    model = language_model("llama", tokenizer)
    saved = openai_requests(LabelWords(tokenizer, LABELS, PROMPT), Correction(), "model")
    # The labels are raw, not named, and improbable.
    with pytest.raises(ValueError, match=r"must answer for all labels, got none for \[.*ask it for more logprobs"):
        asked_in_python(saved, tmp_path, serve(model, False, "texts").url)
    asked_in_python(saved, tmp_path, serve(model, True, "texts").url)  # the common bias raises them
    asked_in_python(saved, tmp_path, serve(model, False, "token ids").url)  # they are named


@pytest.mark.parametrize("prompt", ['It\'s {{not}} "{text}" & $x:\n', PROMPT, "你好 {text}\nIt is"])
def test_curl_sends_the_request(serve, tokenizer, prompt):
    words = LabelWords(tokenizer, ("yes", "no"), prompt)
    saved = openai_requests(words, Correction.bias(1.7, [0.5, -0.5]), "a/model")
    server = serve(language_model("llama", tokenizer), True, "token ids")
    command = saved["curl"].replace("http://localhost:8000/v1/completions", server.url)
    name, url, option, body = shlex.split(command)
    assert (name, url, option) == ("curl", server.url, "--json")
    assert json.loads(body) == saved["request"] | {"prompt": saved["prompt"].format(text="A text to classify.")}
    command = command.replace("--json", "-H 'Content-Type: application/json' -d")  # curl before 7.82
    reply = subprocess.run(["bash", "-c", f"no_proxy='*' {command}"], capture_output=True, text=True, check=True)
    assert len(json.loads(reply.stdout)["choices"][0]["logprobs"]["top_logprobs"][0]) >= 3
    assert server.bodies[-1]["model"] == "a/model"


def test_a_chat_is_sent_as_the_text_that_the_template_makes(serve, tokenizer, tmp_path):
    options = {"chat": True, "system": "Be brief."}
    words = LabelWords(tokenizer, LABELS, "Review: {text}", **options)
    model = language_model("llama", tokenizer)
    saved = openai_requests(words, CORRECTIONS["bias"], "model")
    found = asked_in_python(saved, tmp_path, serve(model, False, "token ids").url)
    scores = label_scores(model, tokenizer, [{"text": TEXT}], LABELS, "Review: {text}", **options)
    expected = CORRECTIONS["bias"].apply(scores)[0].softmax(0)
    assert list(found.values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_what_no_request_can_return_is_refused(tokenizer):
    with pytest.raises(ValueError, match="same first token"):
        openai_requests(LabelWords(tokenizer, ["very good", "very bad"], PROMPT), Correction(), "model")
    far = openai_requests(LabelWords(tokenizer, LABELS, PROMPT), Correction.bias(50, [0, 0, 10.0]), "model")
    assert far["answer_request"] is None and far["logit_bias"] is not None


@pytest.mark.parametrize("labels", [LABELS[:2], LABELS])
@pytest.mark.parametrize("name", ["llama", "qwen3", "phi, whose head has a bias"])
def test_vllm_computes_the_corrected_probabilities_with_its_settings(tokenizer, name, labels):
    """As vLLM's adapters and poolers compute them: rows of the head, then σ or a softmax of (z - mean) / sigma."""
    model, words = language_model(name, tokenizer), LabelWords(tokenizer, labels, PROMPT)
    scores = label_scores(model, tokenizer, [{"text": text} for text in (TEXT, "")], labels, PROMPT).double()
    for kind, correction in CORRECTIONS.items():
        if len(labels) == 2:
            b = torch.as_tensor(correction.b)
            A = torch.as_tensor(correction.A)
            A = A[:2, :2] if A.ndim == 2 else A[:2] if A.ndim else float(A)
            correction = Correction(A, b[:2] if b.ndim else float(b), correction.centered)
        settings = vllm_classifier(words, correction, model)
        if "phi" in name or (len(labels) > 2 and kind not in ("none", "temperature")):
            assert settings is None
            continue
        overrides, pooler = settings["hf_overrides"], settings["pooler_config"]
        assert overrides["architectures"] == [type(model).__name__.replace("CausalLM", "SequenceClassification")]
        ids = tokenizer.convert_tokens_to_ids(overrides["classifier_from_token"])
        assert ids == words.first_tokens
        expected = correction.apply(scores).softmax(1)
        mean, sigma = pooler.get("logit_mean", 0), pooler["logit_sigma"]
        if overrides["method"] == "from_2_way_softmax":
            found = ((scores[:, 1] - scores[:, 0] - mean) / sigma).sigmoid()
            torch.testing.assert_close(found, expected[:, 1], rtol=0, atol=1e-9)
        else:
            torch.testing.assert_close(((scores - mean) / sigma).softmax(1), expected, rtol=0, atol=1e-9)


def test_the_file_has_all_keys_and_its_program_needs_no_packages(serve, tokenizer, tmp_path):
    model, words = language_model("llama", tokenizer), LabelWords(tokenizer, LABELS, "{Customer's text} is")
    settings = vllm_classifier(words, Correction(), model)
    saved = openai_requests(words, Correction(), "model", settings)
    assert [*saved] == [*OpenAIFile.__annotations__] and saved["vllm_classifier"] == settings
    url = serve(model, False, "token ids").url
    (tmp_path / "openai.json").write_text(json.dumps(saved), encoding="utf-8")
    (tmp_path / "ask.py").write_text(saved["python"].replace("http://localhost:8000/v1/completions", url))
    command = [sys.executable, "-I", "-S", "ask.py"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    log_p = log_probabilities(json.loads(json.dumps(saved)), {"Customer's text": "A text to classify."}, url)
    assert ast.literal_eval(printed) == corrected_probabilities(json.loads(json.dumps(saved)), log_p)


def test_names_of_tokens_are_those_that_replies_have(tokenizer):
    saved = openai_requests(LabelWords(tokenizer, LABELS, PROMPT), Correction(), "model")
    texts = [key for key in saved["tokens"] if not re.fullmatch(r"token_id:\d+", key)]
    assert texts == [f" {tokenizer.decode([ids]).strip()}" for ids in saved["token_ids"]]
    assert [saved["tokens"][f"token_id:{ids}"] for ids in saved["token_ids"]] == [*LABELS]
