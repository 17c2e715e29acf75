"""Beam search with a temperature against a beam search of our own in float64, and against all sequences there are."""

import copy
import itertools
import json
import math
import pickle

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    SuppressTokensLogitsProcessor,
    T5Config,
    T5ForConditionalGeneration,
    set_seed,
)

from hf_focal import Temperature, calibrated_generation, fold_correction
from hf_focal.calibration import apply_calibrated_generation

PAD, EOS, BOS, VOCABULARY = 0, 1, 2, 6
NEW_TOKENS = 3
IDS = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS, "decoder_start_token_id": PAD}
SHAPE = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SHAPE |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 16}
SHAPE |= {"vocab_size": VOCABULARY, "init_std": 0.7, "forced_eos_token_id": None, **IDS}


def marian():
    return MarianMTModel(MarianConfig(decoder_vocab_size=VOCABULARY, **SHAPE))


def bart():
    return BartForConditionalGeneration(BartConfig(**SHAPE))


def t5():
    shape = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "initializer_factor": 3.0}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, **shape, **IDS))


def gpt2():
    shape = {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **shape, **ids))


FAMILIES = {"marian": marian, "bart": bart, "t5": t5, "gpt2": gpt2}


def build(family, seed=0):
    """A random model in float64, whose scores `generate` still computes in float32."""
    torch.manual_seed(seed)
    return FAMILIES[family]().double().eval()


SOURCES = torch.tensor([[3, 4, 5], [5, 3, 3]])


def inputs(rows=2):
    return {"input_ids": SOURCES[:rows], "attention_mask": torch.ones_like(SOURCES[:rows])}


class Reference:
    """Hypotheses of one source by the definition: float64 sums of log softmax(z / T) over the allowed tokens."""

    def __init__(self, model, source, temperature, length_penalty=1.0, allowed=lambda tokens: range(VOCABULARY)):
        self.model, self.source = model, source[None]
        self.temperature, self.length_penalty, self.allowed = temperature, length_penalty, allowed
        self.known = {}

    def log_p(self, tokens):
        """Log-probabilities of what follows the generated tokens."""
        if tokens not in self.known:
            generated = torch.tensor([tokens], dtype=torch.long)
            with torch.no_grad():
                if self.model.config.is_encoder_decoder:
                    prefix = torch.cat([torch.tensor([[PAD]]), generated], 1)
                    logits = self.model(input_ids=self.source, decoder_input_ids=prefix).logits
                else:
                    logits = self.model(input_ids=torch.cat([self.source, generated], 1)).logits
            forbidden = [token for token in range(VOCABULARY) if token not in self.allowed(tokens)]
            scaled = logits[0, -1] / self.temperature
            scaled[forbidden] = -torch.inf
            self.known[tokens] = torch.log_softmax(scaled, 0).tolist()
        return self.known[tokens]

    def score(self, tokens):
        total = sum(self.log_p(tokens[:place])[token] for place, token in enumerate(tokens))
        return total / len(tokens) ** self.length_penalty

    def finished(self, tokens):
        return tokens[-1] == EOS or len(tokens) == NEW_TOKENS

    def all_hypotheses(self):
        """Every sequence that ends in EOS or at the largest length, the best first, with its score."""
        found = {}
        for length in range(1, NEW_TOKENS + 1):
            for tokens in itertools.product(range(VOCABULARY), repeat=length):
                if EOS not in tokens[:-1] and self.finished(tokens):
                    found[tokens] = self.score(tokens)
        return sorted(found.items(), key=lambda item: -item[1])

    def beam_search(self, num_beams):
        """The best hypothesis of a beam search, with its score."""
        running, found = {(): 0.0}, {}
        while running:
            extended = {
                (*tokens, token): total + log_p
                for tokens, total in running.items()
                for token, log_p in enumerate(self.log_p(tokens))
            }
            ranked = sorted(extended, key=lambda tokens: -extended[tokens])[: 2 * num_beams]
            found |= {tokens: self.score(tokens) for tokens in ranked[:num_beams] if self.finished(tokens)}
            running = {tokens: extended[tokens] for tokens in ranked if not self.finished(tokens)}
            running = dict(list(running.items())[:num_beams])
        return max(found.items(), key=lambda item: item[1])


def generate(model, rows=2, num_beams=3, **options):
    """Generated tokens without the prompt and what fills them up, as tuples, and their scores."""
    if num_beams > 1:
        options["early_stopping"] = "never"  # the heuristics would end a search before its best hypothesis
    output = model.generate(
        **inputs(rows),
        num_beams=num_beams,
        max_new_tokens=NEW_TOKENS,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    start = 1 if model.config.is_encoder_decoder else SOURCES.shape[1]
    hypotheses = []
    for row in output.sequences[:, start:].tolist():
        hypotheses.append(tuple(row[: row.index(EOS) + 1] if EOS in row else row))
    return hypotheses, output.sequences_scores.tolist() if num_beams > 1 else None


@pytest.mark.parametrize(("temperature", "length_penalty"), [(0.4, 0.6), (5.0, 0.0)])
@pytest.mark.parametrize("family", FAMILIES)
def test_beam_search_is_that_of_the_scaled_softmax(family, length_penalty, temperature):
    model = build(family)
    options = {"length_penalty": length_penalty, **calibrated_generation(temperature)}
    for num_beams in (2, 4):
        hypotheses, scores = generate(model, num_beams=num_beams, **options)
        for source, hypothesis, score in zip(SOURCES, hypotheses, scores, strict=True):
            expected = Reference(model, source, temperature, length_penalty).beam_search(num_beams)
            assert (hypothesis, pytest.approx(score, abs=1e-6)) == expected


@pytest.mark.parametrize(("family", "temperature"), [("marian", 0.4), ("gpt2", 5.0)])
def test_a_beam_as_wide_as_everything_finds_the_best_of_all(family, temperature):
    model = build(family, seed=1)
    hypotheses, scores = generate(
        model,
        rows=1,
        num_beams=VOCABULARY**NEW_TOKENS,
        num_return_sequences=20,
        length_penalty=0.6,
        **calibrated_generation(temperature),
    )
    expected = Reference(model, SOURCES[0], temperature, 0.6).all_hypotheses()[:20]
    assert hypotheses == [tokens for tokens, _ in expected]
    assert scores == pytest.approx([score for _, score in expected], abs=1e-6, rel=1e-6)


CONSTRAINTS = {
    "min_new_tokens": (
        {"min_new_tokens": 3},
        lambda tokens: [t for t in range(VOCABULARY) if t != EOS or len(tokens) > 2],
    ),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 1}, lambda tokens: set(range(VOCABULARY)) - {PAD, *tokens}),
    "bad_words_ids": ({"bad_words_ids": [[PAD], [4]]}, lambda tokens: [1, 2, 3, 5]),
    "forced_bos_token_id": ({"forced_bos_token_id": BOS}, lambda tokens: range(VOCABULARY) if tokens else [BOS]),
    "forced_eos_token_id": (
        {"forced_eos_token_id": EOS},
        lambda tokens: [EOS] if len(tokens) == NEW_TOKENS - 1 else range(VOCABULARY),
    ),
}


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_what_is_forbidden_has_no_probability_and_the_rest_sums_to_one(constraint):
    temperature, (options, allowed) = 2.0, CONSTRAINTS[constraint]
    model = build("marian", seed=2)
    hypotheses, scores = generate(model, length_penalty=0.6, **options, **calibrated_generation(temperature))
    for source, hypothesis, score in zip(SOURCES, hypotheses, scores, strict=True):
        expected = Reference(model, source, temperature, 0.6, allowed).beam_search(3)
        assert (hypothesis, pytest.approx(score, abs=1e-6)) == expected


def without_context(logits):
    """A Marian whose logits are always these."""
    model = build("marian")
    with torch.no_grad():
        model.model.shared.weight.zero_()
        model.final_logits_bias[0] = torch.tensor(logits, dtype=torch.float64)
    return model


def test_temperature_changes_the_winner():
    # With A and E the surprise of a and EOS: EOS at once scores -E, and a, a scores -2A / √2.
    model = without_context([0.0, 1.0, 0.0, 2.0, 0.0, 0.0])
    options = {"rows": 1, "num_beams": 4, "length_penalty": 0.5, "forced_eos_token_id": None}
    for temperature, winner in ((0.5, (3, 3, 3)), (1.0, (3, 3, 3)), (4.0, (EOS,))):
        normalizer = math.log(4 + math.exp(1 / temperature) + math.exp(2 / temperature))
        surprise = {EOS: normalizer - 1 / temperature, 3: normalizer - 2 / temperature}
        hypotheses, scores = generate(model, **options, **calibrated_generation(temperature))
        assert hypotheses == [winner]
        expected = -sum(surprise[token] for token in winner) / math.sqrt(len(winner))
        assert scores == [pytest.approx(expected, abs=1e-6)]
        # Neither of the two ways that look like it does anything.
        assert generate(model, **options, temperature=temperature)[0] == [(3, 3, 3)]
        bare = calibrated_generation(temperature).get("logits_processor")
        assert generate(model, **options, logits_processor=bare)[0] == [(3, 3, 3)]


def test_the_scores_of_the_steps_are_the_scaled_log_probabilities():
    model = build("marian", seed=3)
    output = model.generate(
        **inputs(),
        num_beams=3,
        max_new_tokens=NEW_TOKENS,
        return_dict_in_generate=True,
        output_scores=True,
        length_penalty=0.6,
        **calibrated_generation(1.7),
    )
    for scores in output.scores:
        torch.testing.assert_close(scores.exp().sum(1), torch.ones(6))
    steps = model.compute_transition_scores(output.sequences, output.scores, output.beam_indices)
    lengths = (output.beam_indices >= 0).sum(1)
    torch.testing.assert_close(steps.sum(1) / lengths**0.6, output.sequences_scores, atol=1e-6, rtol=0)


def test_at_1_nothing_is_passed():
    model = build("marian")
    for source in (1, 1.0, Temperature(1.0, "ece", 0.1, 0.1, 1.0, 1.0, 10, 15), model):
        assert calibrated_generation(source) == {}
    assert generate(apply_calibrated_generation(build("marian"))) == generate(model)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_sampling_is_scaled_once_and_its_own_temperature_acts_on_top(num_beams):
    model = build("marian")

    def sample(**options):
        set_seed(0)
        options = {"num_beams": num_beams, "do_sample": True, "top_k": 0, "max_new_tokens": 3} | options
        return model.generate(**inputs(), **options, return_dict_in_generate=True, output_scores=True)

    calibrated = calibrated_generation(1.6)
    for own in (1.0, 0.5):
        got, expected = sample(temperature=own, **calibrated), sample(temperature=own * 1.6, renormalize_logits=True)
        assert got.sequences.tolist() == expected.sequences.tolist()
        for scores, others in zip(got.scores, expected.scores, strict=True):
            torch.testing.assert_close(scores, others)
    with torch.no_grad():
        z = model(**inputs(), decoder_input_ids=torch.full((2, 1), PAD)).logits[:, -1]
    first = sample(**calibrated).scores[0][::num_beams]
    torch.testing.assert_close(first, torch.log_softmax(z / 1.6, 1).float())


def test_a_checkpoint_generates_with_the_temperature_of_its_config(tmp_path):
    fitted = Temperature(4.0, "ece", 0.1, 0.02, 1.5, 1.4, 100, 15)
    model = without_context([0.0, 1.0, 0.0, 2.0, 0.0, 0.0])
    options = {"rows": 1, "num_beams": 4, "length_penalty": 0.5}
    plain, expected = generate(model, **options), generate(model, **options, **calibrated_generation(fitted))
    assert plain != expected

    assert apply_calibrated_generation(model, fitted) is model
    assert generate(model, **options) == expected
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())["calibration"]
    assert saved == {"temperature": 4.0}

    loaded = MarianMTModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert generate(loaded, **options) == plain
    assert generate(loaded, **options, **calibrated_generation(loaded)) == expected
    apply_calibrated_generation(loaded)
    assert generate(loaded, **options) == expected
    loaded.config.calibration = {"temperature": 1.0}  # read at each call
    assert generate(loaded, **options) == plain
    loaded.config.calibration = {"temperature": 4.0, "folded": True}  # the weights have it already
    assert generate(loaded, **options) == plain


@pytest.mark.parametrize("family", ["marian", "gpt2"])
def test_a_folded_temperature_acts_once_and_another_on_top(family, tmp_path):
    model = build(family)
    once, twice = (generate(model, **calibrated_generation(value)) for value in (1.6, 4.0))
    assert once[1] != pytest.approx(twice[1], abs=1e-3)

    def same(got, expected):
        return got[0] == expected[0] and got[1] == pytest.approx(expected[1], abs=1e-5)

    fold_correction(apply_calibrated_generation(model), 1.6).save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, dtype=torch.float64)
    for folded in (model, loaded, apply_calibrated_generation(loaded)):
        assert same(generate(folded), once)
        assert same(generate(folded, **calibrated_generation(folded)), once)
    apply_calibrated_generation(loaded, 2.5)
    assert loaded.config.calibration == {"temperature": 2.5}
    assert same(generate(loaded), twice)


def test_what_a_call_brings_goes_first():
    model = apply_calibrated_generation(build("marian"), 2.5)
    untouched = build("marian")
    assert generate(model, **calibrated_generation(0.5)) == generate(untouched, **calibrated_generation(0.5))
    # Other processors come on top of the model's temperature, as further positional arguments do.
    suppress = SuppressTokensLogitsProcessor([4], device="cpu")
    both = calibrated_generation(2.5)
    both["logits_processor"].append(suppress)
    assert generate(model, logits_processor=[suppress]) == generate(untouched, **both)
    positional = model.generate(SOURCES, None, LogitsProcessorList([suppress]), None, num_beams=2, max_new_tokens=3)
    assert torch.equal(positional, untouched.generate(SOURCES, num_beams=2, max_new_tokens=3, **both))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_generates_with_its_own_weights_and_temperature(duplicate):
    model = apply_calibrated_generation(build("marian"), 2.5)
    expected = generate(model)
    clone = duplicate(model)
    with torch.no_grad():
        model.model.shared.weight.zero_()
    model.config.calibration = None
    assert generate(clone) == expected != generate(model)


def test_a_trainer_passes_them_on(tmp_path):
    model = build("marian").float()
    dataset = [{"input_ids": row, "labels": [3, EOS]} for row in SOURCES.tolist()]
    arguments = Seq2SeqTrainingArguments(tmp_path, predict_with_generate=True, report_to="none", use_cpu=True)

    def collate(rows):
        batch = {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}
        return batch | {"decoder_input_ids": torch.full((len(rows), 2), PAD)}

    trainer = Seq2SeqTrainer(model, arguments, collate, compute_metrics=lambda output: {})
    seen = []
    generate_plainly = model.generate
    model.generate = lambda **options: seen.append(options) or generate_plainly(**options)
    kwargs = calibrated_generation(4.0)
    expected = generate_plainly(SOURCES, num_beams=3, max_length=4, **kwargs)
    predictions = trainer.predict(dataset, num_beams=3, max_length=4, **kwargs).predictions
    assert predictions[:, : expected.shape[1]].tolist() == expected.tolist()
    assert trainer.evaluate(dataset, num_beams=3, max_length=4, **kwargs)["eval_loss"] > 0
    assert [options["logits_processor"] for options in seen] == [kwargs["logits_processor"]] * 2


@pytest.mark.parametrize("value", [0.0, math.inf])
def test_temperatures_must_be_finite_and_positive(value):
    with pytest.raises(ValueError, match="temperature must be finite and positive, got"):
        calibrated_generation(value)
    model = build("marian")
    model.config.calibration = {"temperature": value}
    with pytest.warns(UserWarning, match=rf"config.calibration is ignored, {{'temperature': {value}}}: "):
        assert calibrated_generation(model) == {}
    with pytest.raises(ValueError, match="temperature must be finite and positive, got"):
        apply_calibrated_generation(model, value)


def test_only_what_generates_can_be_changed():
    with pytest.raises(TypeError, match="model must have a method generate, got Linear"):
        apply_calibrated_generation(torch.nn.Linear(2, 2))
