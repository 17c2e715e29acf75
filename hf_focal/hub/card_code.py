"""The Python code on a model card: how to load the model, to correct its logits, and to train another one."""

import numpy as np

from ..calibration import Correction
from ..losses import LossConfig
from ..reports.results.result_sections import ThresholdSection
from .card_contents import CardContents

_ALL = ", top_k=None"  # the argument of a pipeline that returns the probabilities of all labels
_PAIR = '{"text": "A first text.", "text_pair": "A second text."}'


def use_code(card: CardContents) -> str:
    """Return code that loads the model and gives probabilities; whoever publishes a folder replaces its id."""
    package = card.model.package
    first = f"import {package}  # registers this model's class\n" if package else ""
    return first + _loading_code(card)


def _loading_code(card: CardContents) -> str:
    if card.model.is_adapter and card.model.kind.peft_class and not card.generates:
        return _adapter_code(card, card.model.kind.peft_class)
    if card.has_options:
        return _options_code(card)
    if card.generates:
        return _generation_code(card)
    if card.model.task == "image-segmentation":
        return _segmentation_code(card)
    if card.model.task == "multiple-choice":
        return _choice_code(card)
    if auto_class := card.result.data.auto_class:
        return _next_sentence_code(card, auto_class)
    if card.model.task == "image-to-text":
        return _captioning_code(card)
    return _pipeline_code(card)


def _replacing_id(card: CardContents) -> str:
    """Return a comment for whoever runs code of a card whose repository is not known yet; "" for one with an id."""
    if card.model.is_id:
        return ""
    return "# Replace your-username by the owner of this repository, or the whole id by the folder of the model.\n"


def _adapter_code(card: CardContents, peft_class: str) -> str:
    return f'''from peft import {peft_class}

{_replacing_id(card)}model = {peft_class}.from_pretrained("{card.model.quoted_id}", num_labels={card.model.num_labels})
model = model.merge_and_unload()  # optional
'''


def _options_code(card: CardContents) -> str:
    corrected = ", with T applied" if card.correction else ""
    return f'''from hf_focal.choices import score_choices
from transformers import AutoModelForCausalLM, AutoTokenizer

{_replacing_id(card)}tokenizer = AutoTokenizer.from_pretrained("{card.model.quoted_id}")
model = AutoModelForCausalLM.from_pretrained("{card.model.quoted_id}")
questions, options = ["Which of these is a fruit?"], [["apple", "table", "river"]]
scores = score_choices(model, tokenizer, questions, options{_scoring(card)})
print(scores.softmax(-1))  # the probability of each option{corrected}
'''


def _scoring(card: CardContents) -> str:
    """Return the arguments of `score_choices` with which the options were scored; "" for defaults."""
    options = card.result.data.options or {}
    values = {name: options[name] for name in ("score", "letters", "template", "chat") if name in options}
    if "letters" in values:
        values["letters"] = values["letters"].split(",")
    if "template" in values:
        values["template"] = values["template"].replace("\\n", "\n")
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _generation_code(card: CardContents) -> str:
    kind = card.model.kind
    adapter_class = kind.peft_class if card.model.is_adapter else None
    model_class = adapter_class or kind.auto_class
    if adapter_class:
        imports = f"from peft import {adapter_class}\nfrom transformers import AutoTokenizer"
    else:
        imports = f"from transformers import {model_class}, AutoTokenizer"
    return f'''{imports}

{_replacing_id(card)}tokenizer = AutoTokenizer.from_pretrained("{card.model.quoted_id}")
model = {model_class}.from_pretrained("{card.model.quoted_id}")
inputs = tokenizer("{kind.example}", return_tensors="pt")
output = model.generate(**inputs, num_beams=4)
print(tokenizer.decode(output[0], skip_special_tokens=True))
'''


def _segmentation_code(card: CardContents) -> str:
    return f'''import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

{_replacing_id(card)}processor = AutoImageProcessor.from_pretrained("{card.model.quoted_id}")
model = AutoModelForSemanticSegmentation.from_pretrained("{card.model.quoted_id}")
image = Image.open("image.png").convert("RGB")
logits = model(**processor(image, return_tensors="pt")).logits
logits = torch.nn.functional.interpolate(logits, image.size[::-1], mode="bilinear")
print(logits.softmax(1))  # (1, classes, height, width)
'''


def _choice_code(card: CardContents) -> str:
    return f'''from transformers import AutoModelForMultipleChoice, AutoTokenizer

{_replacing_id(card)}tokenizer = AutoTokenizer.from_pretrained("{card.model.quoted_id}")
model = AutoModelForMultipleChoice.from_pretrained("{card.model.quoted_id}")
question, options = "Which of these is a fruit?", ["apple", "table", "river"]
inputs = tokenizer([question] * len(options), options, padding=True, return_tensors="pt")
logits = model(**{{name: values[None] for name, values in inputs.items()}}).logits
print(logits.softmax(-1))  # the probability of each option
'''


def _next_sentence_code(card: CardContents, auto_class: str) -> str:
    return f'''from transformers import {auto_class}, AutoTokenizer

{_replacing_id(card)}tokenizer = AutoTokenizer.from_pretrained("{card.model.quoted_id}")
model = {auto_class}.from_pretrained("{card.model.quoted_id}")
logits = model(**tokenizer("A first text.", "A second text.", return_tensors="pt")).logits
print(logits.softmax(-1))  # the probability of each class
'''


def _captioning_code(card: CardContents) -> str:
    return f'''from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

{_replacing_id(card)}processor = AutoImageProcessor.from_pretrained("{card.model.quoted_id}")
tokenizer = AutoTokenizer.from_pretrained("{card.model.quoted_id}")
model = AutoModelForImageTextToText.from_pretrained("{card.model.quoted_id}")
image = Image.open("image.png").convert("RGB")
output = model.generate(**processor(image, return_tensors="pt"))
print(tokenizer.decode(output[0], skip_special_tokens=True))
'''


def _pipeline_code(card: CardContents) -> str:
    example = f"{_PAIR}{_ALL}" if _takes_pairs(card) else card.model.kind.example
    made = f'pipeline("{card.model.task}", model="{card.model.quoted_id}")'
    name = "classifier" if example else "model"
    call = f'print(classifier({example}))  # "score" is the probability\n' if example else ""
    return f"from transformers import pipeline\n\n{_replacing_id(card)}{name} = {made}\n{call}"


def _takes_pairs(card: CardContents) -> bool:
    """Return whether the model classifies pairs of texts."""
    if card.model.task != "text-classification":
        return False
    return card.model.takes_pairs or bool((card.result.data.options or {}).get("text_pair_column"))


def threshold_code(card: CardContents, thresholds: ThresholdSection) -> str:
    """Return code that decides by the thresholds in the config of the model."""
    if card.result.data.auto_class:
        return """thresholds = model.config.thresholds["values"]  # a label without a threshold never applies
score, number = logits.softmax(-1)[0].max(0)  # model and logits: those of the code above
label = model.config.id2label[number.item()]
print([label] if score >= thresholds.get(label, 2) else [])
"""
    item = _PAIR if _takes_pairs(card) else '"A text to classify."'
    item = '"image.png"' if card.model.task == "image-classification" else item
    top_k = 1 if thresholds.link == "softmax" else None
    return f'''from transformers import pipeline

{_replacing_id(card)}classifier = pipeline("{card.model.task}", model="{card.model.quoted_id}")
thresholds = classifier.model.config.thresholds["values"]  # a label without a threshold never applies
scores = classifier([{item}], top_k={top_k})
print([[item["label"] for item in each if item["score"] >= thresholds.get(item["label"], 2)] for each in scores])
'''


# What the code that applies a correction needs; the pipeline of the first code has both.
_MODEL_AND_INPUTS = """import torch

# model and inputs: classifier.model, and what its tokenizer or processor returns as tensors
logits = model(**inputs).logits
"""


def platt_code(correction: Correction) -> str:
    """Return code that applies the slopes and intercepts of sigmoid logits, one of each or one for each label."""
    slopes, intercepts = (part.tolist() for part in np.broadcast_arrays(*correction.dense()))
    if not isinstance(slopes, list):
        return f"{_MODEL_AND_INPUTS}probabilities = ({slopes} * logits + {intercepts}).sigmoid()\n"
    return (
        f"{_MODEL_AND_INPUTS}slopes, intercepts = torch.tensor({slopes}), torch.tensor({intercepts})\n"
        "probabilities = (slopes * logits + intercepts).sigmoid()\n"
    )


def temperature_code(card: CardContents) -> str:
    """Return code that applies T."""
    fitted = card.result.temperature
    if not card.generates:
        divisor = f"torch.tensor({[*fitted.values]})" if fitted.values else f"{fitted.value}"
        link = "sigmoid()" if card.has_sigmoid else "softmax(-1)"
        return f"{_MODEL_AND_INPUTS}probabilities = (logits / {divisor}).{link}\n"
    code = f"""from hf_focal import calibrated_generation
output = model.generate(**inputs, num_beams=4, **calibrated_generation({fitted.value}))
"""
    if not card.model.is_adapter:
        return code
    comment = "To sample with T, and the base model's top_k and top_p, without hf_focal; generation_config.json has T:"
    return f"""{code}# {comment}
from transformers import GenerationConfig
output = model.generate(**inputs, generation_config=GenerationConfig.from_pretrained("{card.model.quoted_id}"))
"""


def training_code(card: CardContents, loss: LossConfig) -> str:
    """Return code that trains another model with the same loss."""
    trainer, arguments = "Focal", "TrainingArguments"
    if card.training and card.training.is_sft:
        trainer, arguments = "FocalSFT", "Config"
    elif card.model.kind.is_seq2seq:
        trainer = "FocalSeq2Seq"
    held_out = ", calibration_dataset=validation" if loss.name == "adafocal" else ""
    return f'''from hf_focal import {trainer}Trainer, {trainer}{arguments}

args = {trainer}{arguments}(output_dir="out", loss="{loss}")
trainer = {trainer}Trainer(model=model, args=args, train_dataset=train, eval_dataset=validation{held_out})
'''
