"""Language models with label words as sequence classifiers: the same scores, or a reason why not."""

import numpy as np
import pytest
import torch
from label_word_models import FAMILIES, LABELS, PROMPT, label_tokenizer, language_model
from transformers import AutoModelForSequenceClassification

from hf_focal import Correction, InputError
from hf_focal.choices import label_scores
from hf_focal.choices.label_words import LabelWords
from hf_focal.choices.label_words_model import LabelWordsModel
from hf_focal.choices.sequence_classifier import sequence_classifier

TEXTS = ["a good film", "", "bad {text} {{ film 你好 <eos> \u00e9", "film " * 40]
FOLDED = [name for name in FAMILIES if "soft cap" not in name]


@pytest.fixture(scope="module")
def tokenizer():
    return label_tokenizer()


@pytest.mark.parametrize("name", FOLDED)
def test_a_classifier_has_the_rows_of_the_head(name, tokenizer, tmp_path):
    model = language_model(name, tokenizer)
    scorer = LabelWordsModel(model, LabelWords(tokenizer, LABELS, PROMPT))
    random = np.random.default_rng(0)
    b = random.normal(size=3)
    corrections = [Correction(), Correction.temperature(3.0), Correction.bias(2.0, b)]
    corrections += [Correction.vector([2.0, 0.5, 1.0], b), Correction.matrix(random.normal(size=(3, 3)), b)]
    scores = label_scores(model, tokenizer, [{"text": text} for text in TEXTS], LABELS, PROMPT)
    for number, correction in enumerate(corrections):
        classifier, rest = sequence_classifier(scorer, correction, [[text] for text in TEXTS])
        classifier.save_pretrained(tmp_path / str(number))
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / str(number))
        assert type(loaded).__name__.endswith("ForSequenceClassification")
        texts = [loaded.config.prompt.format(text=text) for text in TEXTS]
        with torch.no_grad():
            logits = loaded(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        if not rest.is_identity:
            assert loaded.config.calibration["folded"] is False
            logits = logits + torch.tensor(loaded.config.calibration["b"])
        expected = correction.apply(scores).softmax(1)
        torch.testing.assert_close(logits.softmax(1).float(), expected, rtol=0, atol=1e-5)
        if number == 0 and "phi" not in name:
            torch.testing.assert_close(logits, scores, rtol=0, atol=1e-5)


def test_what_a_classifier_cannot_hold_is_refused(tokenizer):
    capped = LabelWordsModel(
        language_model("gemma2 with a soft cap", tokenizer), LabelWords(tokenizer, LABELS, PROMPT)
    )
    with pytest.raises(
        InputError, match="save_as must not be 'classifier' for this Gemma2ForCausalLM: its logits have a soft cap"
    ):
        sequence_classifier(capped, Correction(), [["a"]])
    words = LabelWords(tokenizer, ["very good", "very bad"], PROMPT)
    with pytest.raises(InputError, match="same first token"):
        sequence_classifier(LabelWordsModel(language_model("llama", tokenizer), words), Correction(), [["a"]])
