"""The selection rules at work: which positions a denoising step commits.

    selector = make(config, special, batch)

Settings are in ``dare.sampling.rules``; one class here for each of them.
"""

from __future__ import annotations

from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig
from dare.sampling.rules import MaskGit
from dare.sampling.selection.base import Selector
from dare.sampling.selection.dinfer import DInferThresholdSelector, HierarchySelector
from dare.sampling.selection.dream import DreamSelector, OriginSelector
from dare.sampling.selection.edit import EditSelector
from dare.sampling.selection.klass import KlassSelector
from dare.sampling.selection.saber import SaberSelector
from dare.sampling.selection.schedule import (
    AscendingSelector,
    MaskGitSelector,
    RunningConfidenceSelector,
    ScheduleSelector,
)
from dare.sampling.selection.sequential import SequentialSelector
from dare.sampling.selection.threshold import (
    DynamicSelector,
    EntropyBoundSelector,
    FactorSelector,
    ThresholdSelector,
)

SELECTORS: dict[str, type[Selector]] = {
    "schedule": ScheduleSelector,
    "ascending": AscendingSelector,
    "maskgit": MaskGitSelector,
    "threshold": ThresholdSelector,
    "factor": FactorSelector,
    "dynamic": DynamicSelector,
    "sequential": SequentialSelector,
    "entropy_bound": EntropyBoundSelector,
    "dream": DreamSelector,
    "origin": OriginSelector,
    "dinfer_threshold": DInferThresholdSelector,
    "hierarchy": HierarchySelector,
    "klass": KlassSelector,
    "saber": SaberSelector,
    "edit": EditSelector,
}


def make(config: SamplerConfig, special: SpecialTokens, batch: int) -> Selector:
    """The selector of ``config.selection`` for a batch of that many rows."""
    rule = config.selection
    if isinstance(rule, MaskGit) and rule.running_confidence:
        return RunningConfidenceSelector(config, special, batch)
    return SELECTORS[rule.rule](config, special, batch)
