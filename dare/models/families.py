"""The model class of every family, registered with transformers' Auto classes.

After this import ``AutoConfig``, ``AutoModel`` and ``AutoModelForCausalLM`` build our classes
from the released folders, also where ``auto_map`` points at remote code.
"""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from dare.models.base import DiffusionLM
from dare.models.dream import DreamModel
from dare.models.facts import family_of
from dare.models.llada import LLaDAConfig, LLaDAModelLM
from dare.models.llada2_moe import LLaDA2MoeModelLM
from dare.models.llada_moe import LLaDAMoEConfig, LLaDAMoEModelLM
from dare.models.sdar import SDARForCausalLM
from dare.models.sdar_moe import SDARMoeForCausalLM

FAMILIES: dict[str, type[DiffusionLM]] = {
    "llada": LLaDAModelLM,
    "llada_moe": LLaDAMoEModelLM,
    "dream": DreamModel,
    "sdar": SDARForCausalLM,
    "sdar_moe": SDARMoeForCausalLM,
    "llada2_moe": LLaDA2MoeModelLM,
}


class AnnouncedAsLlada(LLaDAConfig):
    """Stands for the model_type "llada", which the dense models and LLaDA-MoE both announce."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        family = FAMILIES[family_of(config_dict)]
        return family.config_class.from_dict(config_dict, **kwargs)


class AnnouncedAsLladaMoe(LLaDAMoEConfig):
    """Stands for the model_type that some tools write into a LLaDA-MoE config instead."""

    model_type = "lladamoe"

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        return LLaDAMoEConfig.from_dict(config_dict | {"model_type": "llada"}, **kwargs)


def _register() -> None:
    for stand_in in (AnnouncedAsLlada, AnnouncedAsLladaMoe):
        AutoConfig.register(stand_in.model_type, stand_in, exist_ok=True)
    for model in FAMILIES.values():
        config = model.config_class
        if config.model_type != "llada":
            AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModel.register(config, model, exist_ok=True)
        AutoModelForCausalLM.register(config, model, exist_ok=True)


_register()
