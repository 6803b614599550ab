"""The selection rules at work: which positions a denoising step commits.

    selector = make(config, special, batch)

Settings are in ``dare.sampling.rules``; one class here for each of them.
"""

from __future__ import annotations

from dare.sampling.candidates import SpecialTokens
from dare.sampling.config import SamplerConfig
from dare.sampling.selection.base import Selector
from dare.sampling.selection.schedule import ScheduleSelector
from dare.sampling.selection.threshold import DynamicSelector, ThresholdSelector

SELECTORS: dict[str, type[Selector]] = {
    "schedule": ScheduleSelector,
    "threshold": ThresholdSelector,
    "dynamic": DynamicSelector,
}


def make(config: SamplerConfig, special: SpecialTokens, batch: int) -> Selector:
    """The selector of ``config.selection`` for a batch of that many rows."""
    return SELECTORS[config.selection.rule](config, special, batch)
