"""LoRA adapters of a recipe's model, with PEFT."""

from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import is_peft_available


@dataclass(kw_only=True)
class LoraArguments:
    """LoRA adapters, which are trained in place of the model's own weights."""

    lora_r: int | None = field(default=None, metadata={"help": "Train LoRA adapters of this rank, with PEFT."})
    lora_alpha: int = field(default=16, metadata={"help": "LoRA scales its update by lora_alpha / lora_r."})
    lora_dropout: float = field(default=0.0, metadata={"help": "Dropout before the LoRA layers."})
    lora_target_modules: list[str] | None = field(
        default=None, metadata={"help": "Names of the layers that get LoRA adapters. Default: PEFT's for the model."}
    )

    def __post_init__(self) -> None:
        if self.lora_r is not None and not is_peft_available():
            raise ValueError(f"lora_r needs PEFT, which is not installed, got {self.lora_r}: pip install peft")

    def with_adapters(self, model: PreTrainedModel) -> Any:
        """Return a sequence classifier with LoRA adapters if `lora_r` is given, and unchanged otherwise."""
        if self.lora_r is None:
            return model
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(
            task_type="SEQ_CLS",
            r=self.lora_r,
            lora_alpha=self.lora_alpha,
            lora_dropout=self.lora_dropout,
            target_modules=self.lora_target_modules,
        )
        return get_peft_model(model, config)
