"""Fine-tune a translator, correct the probabilities of its tokens, and measure their calibration and BLEU.

    python translation.py --model_name_or_path org/model --train_file train.jsonl --test_file test.jsonl \\
        --source_column en --target_column de --losses cross_entropy,focal:gamma=1 --output_dir out/de
    hf-focal report out/de

BLEU is measured by temperature: searching with the T that calibrates tokens can raise or lower it.

A row holds a sentence and its translation, or a mapping of both in the column "translation". T5 needs --source_prefix,
multilingual models --source_lang and --target_lang. Without --losses, the recipe trains once, with --loss. With
--resume_from_checkpoint true, each run goes on from its last checkpoint. On several GPUs: accelerate launch.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from sacrebleu.metrics import BLEU
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, set_seed

from hf_focal import (
    FocalSeq2SeqTrainer,
    FocalSeq2SeqTrainingArguments,
    InputError,
    calibrated_generation,
    load_splits,
    parse_recipe,
)
from hf_focal.tasks import DataArguments


@dataclass(kw_only=True)
class RecipeArguments(DataArguments):
    model_name_or_path: str = field(metadata={"help": "a Hub id or a folder: Marian, T5, mBART, NLLB, ..."})
    revision: str = field(default="main", metadata={"help": "branch, tag or commit of the model on the Hub"})
    trust_remote_code: bool = field(default=False, metadata={"help": "run code that comes with the model"})
    max_length: int = field(default=128, metadata={"help": "tokens to keep of a sentence, and to generate"})
    num_beams: int = field(default=4, metadata={"help": "beams of beam search"})
    bleu_temperatures: list[float] = field(
        default_factory=lambda: [0.75, 1.0, 1.25], metadata={"help": "temperatures to search with, and the fitted T"}
    )
    source_prefix: str = field(default="", metadata={"help": "text before each source, for T5"})
    source_lang: str | None = field(default=None, metadata={"help": "code of the source, for multilingual models"})
    target_lang: str | None = field(default=None, metadata={"help": "code of the target, for multilingual models"})
    source_column: str = field(default="source", metadata={"help": "the column of sentences, or their key"})
    target_column: str = field(default="target", metadata={"help": "the column of translations, or their key"})

    def __post_init__(self) -> None:
        for T in self.bleu_temperatures:
            if not 0 < T < math.inf:
                raise InputError("bleu_temperatures", f"must be positive numbers, got {T}")


def main() -> None:
    recipe, runs = parse_recipe(RecipeArguments, FocalSeq2SeqTrainingArguments, __doc__)
    name = recipe.model_name_or_path
    source = {"revision": recipe.revision, "trust_remote_code": recipe.trust_remote_code}
    languages = {"src_lang": recipe.source_lang, "tgt_lang": recipe.target_lang}
    languages = {side: code for side, code in languages.items() if code}  # other tokenizers do not take them

    with runs[0].main_process_first(desc="loading the data"):
        splits, _ = load_splits(
            "translation",
            **recipe.location(),
            source_column=recipe.source_column,
            target_column=recipe.target_column,
            seed=runs[0].seed,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **languages, **source)

        def encode(rows: dict) -> dict:
            sources = [recipe.source_prefix + text for text in rows["source"]]
            return tokenizer(sources, text_target=rows["target"], truncation=True, max_length=recipe.max_length)

        encoded = splits.map(encode, batched=True, remove_columns=["source", "target"], desc="tokenizing")

    for args in runs:
        args.predict_with_generate = True
        set_seed(args.seed)
        # In full precision, whatever the weights were saved in; --bf16 and --fp16 compute in half.
        model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype=torch.float32, **source)
        if recipe.target_lang:
            model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(recipe.target_lang)
        trainer = FocalSeq2SeqTrainer(
            model=model,
            args=args,
            train_dataset=encoded["train"],
            eval_dataset=encoded["validation"],
            calibration_dataset=encoded["validation"],
            processing_class=tokenizer,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        )
        trainer.accelerator.print(
            f"\n{args.loss}: training on {len(encoded['train']):,} pairs; processes: {args.world_size}"
        )
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
        trainer.save_state()

        # Fits T to the validation data, writes report.html, and saves or publishes the model with its card.
        result = trainer.finish(encoded["test"], dataset=recipe.data_name)
        for T in sorted({*recipe.bleu_temperatures, result.temperature.value}):
            search = {"max_length": recipe.max_length, "num_beams": recipe.num_beams, **calibrated_generation(T)}
            search["renormalize_logits"] = True  # also at T = 1, so that only T differs
            ids = torch.from_numpy(trainer.predict(encoded["test"], **search).predictions)
            texts = tokenizer.batch_decode(ids.masked_fill(ids < 0, tokenizer.pad_token_id), skip_special_tokens=True)
            if args.process_index == 0:
                Path(args.output_dir, f"translations_T{T:.4g}.txt").write_text("\n".join(texts), encoding="utf-8")
                print(f"T = {T:.4g}: {BLEU().corpus_score(texts, [splits['test']['target'][:]])}")


if __name__ == "__main__":
    main()
