"""Options scored by a model trained here, against its full logits in float64."""

import copy
import json
import os
import re

import numpy as np
import pytest
import torch
from metrics import reference
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from hf_focal import CalibrationMetrics, InputError, fit_temperature, fold_correction
from hf_focal.choices import answer_indices, score_choices
from hf_focal.choices import option_scores as module

TOPICS = {"sea": (0.7, 0.2, 0.1), "sky": (0.2, 0.2, 0.6), "sun": (0.1, 0.8, 0.1)}
WORDS = ("fish", "bird", "red fox", "blue whale", "grey goose")
CHAT = "{% for m in messages %}<user>{{ m.content }}<bot>{% endfor %}"
SPECIAL = {"pad_token_id": None, "eos_token_id": None, "bos_token_id": None}


def questions(count, seed=0):
    """Questions, their three options and the indices of the answers, drawn from the topic's probabilities."""
    random = np.random.default_rng(seed)
    topics = random.choice(list(TOPICS), count)
    texts = [f"what lives in the {'deep ' * int(random.integers(3))}{topic}?" for topic in topics]
    options = [list(random.permutation(WORDS)[:3]) for _ in topics]
    return texts, options, torch.tensor([random.choice(3, p=TOPICS[topic]) for topic in topics])


@pytest.fixture(scope="module")
def tokenizer():
    """Byte-level BPE, which joins a space with the letter after it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    texts, options, _ = questions(200)
    lines = [f"{text}\nA. {a}\nB. {b}\nC. {c}\nAnswer: A B C" for text, (a, b, c) in zip(texts, options, strict=True)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, chat_template=CHAT)


@pytest.fixture(scope="module")
def model(tokenizer):
    """Trained to answer with the letter; in float64 from then on."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.1, **SPECIAL)).eval()  # without dropout
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    texts, options, answers = questions(32 * 150, seed=1)
    prompts = [torch.tensor(prompt(tokenizer, *asked)) for asked in zip(texts, options, strict=True)]
    labels = torch.tensor(letter_ids(tokenizer))[answers]
    for start in range(0, len(prompts), 32):
        part = slice(start, start + 32)
        batch, ends = torch.nn.utils.rnn.pad_sequence(prompts[part], batch_first=True), list(map(len, prompts[part]))
        hidden = model.transformer(batch).last_hidden_state[torch.arange(32), torch.tensor(ends) - 1]
        torch.nn.functional.cross_entropy(model.lm_head(hidden), labels[part]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.double()


def prompt(tokenizer, text, options):
    lines = "".join(f"{letter}. {option}\n" for letter, option in zip("ABCD", options, strict=False))
    return tokenizer(f"{text}\n{lines}Answer:")["input_ids"]


def letter_ids(tokenizer):
    return [tokenizer.convert_tokens_to_ids("Ġ" + letter) for letter in "ABC"]


@torch.no_grad()
def full_log_p(model, ids):
    return model(torch.tensor([ids])).logits[0].double().log_softmax(-1)


def expected_letters(model, tokenizer, texts, options):
    rows = [full_log_p(model, prompt(tokenizer, *pair))[-1] for pair in zip(texts, options, strict=True)]
    return torch.stack(rows)[:, letter_ids(tokenizer)]


def expected_text(model, tokenizer, texts, options):
    scores = []
    for text, own in zip(texts, options, strict=True):
        head = tokenizer(f"{text}\nAnswer:")["input_ids"]
        ends = [tokenizer(f" {option}")["input_ids"] for option in own]
        of_own = [full_log_p(model, head + end)[len(head) - 1 : -1] for end in ends]
        scores.append([log_p[range(len(end)), end].mean() for log_p, end in zip(of_own, ends, strict=True)])
    return torch.tensor(scores)


def test_the_model_answers_with_the_known_probabilities(model, tokenizer):
    texts, options, _ = questions(60, seed=2)
    found = score_choices(model, tokenizer, texts, options).softmax(-1)
    known = torch.tensor([TOPICS[text[:-1].split()[-1]] for text in texts])
    assert (found - known).abs().mean() < 0.08


@pytest.mark.parametrize("score", ["letters", "text"])
def test_scores_and_figures_are_those_of_the_full_logits(model, tokenizer, score):
    texts, options, answers = questions(70, seed=2)
    found = score_choices(model, tokenizer, texts, options, score=score, batch_size=8)
    expected = (expected_letters if score == "letters" else expected_text)(model, tokenizer, texts, options)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    metrics = CalibrationMetrics(classwise=False)
    metrics.update(found, answers)
    values, probabilities = metrics.compute(), reference.softmax(expected)
    confidence, correct = reference.top_label(probabilities, answers.numpy())
    assert values["ece"] == pytest.approx(reference.ece(confidence, correct), abs=1e-12)
    assert values["accuracy"] == pytest.approx(correct.mean())
    assert values["nll"] == pytest.approx(-np.log(probabilities[range(70), answers]).mean())
    one_hot = np.eye(3)[answers]
    assert values["brier"] == pytest.approx(((probabilities - one_hot) ** 2).sum(1).mean())


def test_a_temperature_of_letters_folds(tokenizer, model):
    texts, options, answers = questions(200, seed=3)
    copy = GPT2LMHeadModel(model.config).double().eval()
    copy.load_state_dict(model.state_dict())
    fold_correction(copy, 0.25)
    temperature = fit_temperature(score_choices(copy, tokenizer, texts, options), answers, "nll")
    assert 3 < temperature.value < 5 and temperature.nll_after < temperature.nll_before
    scores = score_choices(copy, tokenizer, texts, options)
    fold_correction(copy, temperature)
    folded = score_choices(copy, tokenizer, texts, options)
    torch.testing.assert_close(folded.softmax(-1), (scores / temperature.value).softmax(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("score", ["letters", "text"])
def test_options_that_a_question_lacks_have_no_probability(model, tokenizer, score):
    texts, options, answers = questions(12, seed=4)
    fewer = [own[: 2 + row % 2] for row, own in enumerate(options)]
    found = score_choices(model, tokenizer, texts, fewer, score=score)
    for row in range(12):
        (alone,) = score_choices(model, tokenizer, texts[row : row + 1], fewer[row : row + 1], score=score)
        torch.testing.assert_close(found[row, : len(alone)], alone, rtol=0, atol=1e-12)
    missing = torch.tensor([len(own) == 2 for own in fewer])
    assert (found[missing, 2] == -torch.inf).all() and found[~missing].isfinite().all()
    metrics, labels = CalibrationMetrics(classwise=False), answers.clamp(max=1)
    metrics.update(found, labels)
    expected = [-float(row[row.isfinite()].log_softmax(0)[label]) for row, label in zip(found, labels, strict=True)]
    assert metrics.compute()["nll"] == pytest.approx(np.mean(expected))


def test_only_the_needed_positions_reach_the_head(model, tokenizer):
    texts, options, _ = questions(6, seed=5)
    shapes = []
    hook = model.lm_head.register_forward_hook(lambda _, args, output: shapes.append(tuple(output.shape)))
    score_choices(model, tokenizer, texts, options, batch_size=4)
    hook.remove()
    assert shapes == [(1, 4, len(tokenizer)), (1, 2, len(tokenizer))]
    assert not model.lm_head._forward_pre_hooks


def test_what_a_model_does_to_its_logits_is_done(tokenizer):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Gemma2Config(vocab_size=len(tokenizer), num_key_value_heads=1, head_dim=4, **sizes, **SPECIAL)
    config.final_logit_softcapping, config.initializer_range = 0.5, 1.0
    model = Gemma2ForCausalLM(config).double().eval()
    texts, options, _ = questions(5, seed=6)
    found = score_choices(model, tokenizer, texts, options)
    torch.testing.assert_close(found, expected_letters(model, tokenizer, texts, options), rtol=0, atol=1e-12)


def test_template_letters_and_chat(model, tokenizer):
    found = score_choices(
        model, tokenizer, ["sea?"], [["fish", "fox"]], letters="BA", template="{question} {options}", chat=True
    )
    ids = tokenizer("<user>sea? B. fish\nA. fox<bot>")["input_ids"]
    expected = full_log_p(model, ids)[-1][[letter_ids(tokenizer)[1], letter_ids(tokenizer)[0]]]
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("chat_template", "message"),
    [("{{ raise_exception('no user') }}", "raises: no user"), (None, "raises: .*chat_template is not set")],
)
def test_a_chat_template_that_raises(chat_template, message, model, tokenizer):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = chat_template
    with pytest.raises(InputError, match=f"chat must fit the tokenizer's chat template, which {message}"):
        score_choices(model, changed, ["sea?"], [["fish", "fox"]], chat=True)


def test_the_end_that_a_tokenizer_adds_is_left_out(model, tokenizer):
    ending = copy.deepcopy(tokenizer)
    ending.add_special_tokens({"eos_token": "!"})
    end = ending.eos_token_id
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A !", special_tokens=[("!", end)])
    assert ending("sea")["input_ids"][-1] == end
    texts, options, _ = questions(4, seed=9)
    for score in ("letters", "text"):
        plain = score_choices(model, tokenizer, texts, options, score=score)
        assert torch.equal(score_choices(model, ending, texts, options, score=score), plain)


@pytest.mark.parametrize("cut", [0, 9])
@pytest.mark.parametrize("score", ["letters", "text"])
def test_an_interrupted_call_goes_on_and_ends_in_the_same_file(model, tokenizer, tmp_path, monkeypatch, score, cut):
    texts, options, _ = questions(20, seed=7)
    arguments = {"score": score, "batch_size": 6}
    expected = score_choices(model, tokenizer, texts, options, folder=tmp_path / "whole", **arguments)
    (whole,) = (tmp_path / "whole").iterdir()
    score_batch, calls = module._score_batch, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return score_batch(*args)

    monkeypatch.setattr(module, "_score_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        score_choices(model, tokenizer, texts, options, folder=tmp_path / "part", **arguments)
    (part,) = (tmp_path / "part").iterdir()
    assert len(part.read_text().splitlines()) == 2
    if cut:  # as if the process had died within the last write
        os.truncate(part, part.stat().st_size - cut)
    resumed = score_choices(model, tokenizer, texts, options, folder=tmp_path / "part", **arguments)
    assert len(calls) == 3 + 2 + bool(cut)
    assert part.name == whole.name and part.read_bytes() == whole.read_bytes()
    assert torch.equal(resumed, expected)
    assert sorted(row for line in part.open() for row in json.loads(line)["rows"]) == list(range(20))


def test_scores_of_another_model_are_not_taken(model, tokenizer, tmp_path):
    texts, options, _ = questions(4, seed=8)
    before = score_choices(model, tokenizer, texts, options, folder=tmp_path)
    other = GPT2LMHeadModel(model.config).double().eval()
    after = score_choices(other, tokenizer, texts, options, folder=tmp_path)
    assert not torch.equal(before, after) and len(list(tmp_path.iterdir())) == 2
    other.config.layer_norm_epsilon = 0.1
    score_choices(other, tokenizer, texts, options, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    with torch.no_grad():
        other.transformer.h[0].mlp.c_fc.weight[3, 5] += 1
    score_choices(other, tokenizer, texts, options, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": "words"}, "score must be 'letters' or 'text', got 'words'"),
        ({"choices": [["fish"], ["fox"]]}, "choices must have 2 to 26 options.* got 1 for question 0"),
        ({"choices": [["fish", "fox"]]}, "choices must have one list per question, got 1 for 2"),
        ({"letters": "AB", "choices": [["a", "b"], ["a", "b", "c"]]}, "2 to 2 options.* got 3 for question 1"),
        ({"letters": ["A", "zebra"]}, "letters must each be one token of their own after the prompt, got 'zebra'"),
        ({"letters": ["A", "A"]}, "letters must each be one token of their own after the prompt, got 'A'"),
        ({"template": "{question} "}, "must not end in a space"),
        *(
            ({"template": template}, re.escape(f"no fields but {{question}} and {{options}}, got {template!r}") + "$")
            for template in ("{query}", "{}", "{0}", "{question.upper}", "{question[0]}")
        ),
        ({"template": "{question.__class__}!{options!r}"}, "no fields but .*, got '{question.__class__}!{options!r}'"),
        ({"template": "{options:>9}"}, "no fields but .*, got '{options:>9}'"),
        ({"template": "{question"}, "no fields but .*, got '{question'"),
        ({"questions": ["", "sea? " * 70]}, r"model's 64 positions, got [\d,]+ tokens for question 1, the longest"),
        ({"score": "text", "template": "", "questions": ["", ""]}, "must have tokens of their own, got none"),
    ],
)
def test_what_is_refused_before_anything_is_scored(model, tokenizer, changes, message):
    arguments = {"questions": ["sea?", "sky?"], "choices": [["fish", "fox"]] * 2} | changes
    with pytest.raises(ValueError, match=message):
        score_choices(model, tokenizer, **arguments)


def test_a_model_without_a_vocabulary_is_refused(tokenizer):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **sizes))
    with pytest.raises(TypeError, match="model must have a head, its output embeddings, got BertForSequence"):
        score_choices(model, tokenizer, ["sea?"], [["fish", "fox"]])


def test_answers_are_the_labels_of_scores():
    found = answer_indices(["fox", 0, "C"], [["fish", "fox"], ["B", "A"], ["1", "7", "9"]])
    assert found.dtype == torch.int64 and found.tolist() == [1, 0, 2]
