"""The token ids that mean something to whoever generates or trains.  Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dare.errors import UsageProblem


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """mask; eos ends a text, eot a turn, None where there is none; pad; any of ``stop`` ends a
    completion."""

    mask: int
    eos: int | None
    eot: int | None = None
    pad: int | None = None
    stop: tuple[int, ...] = ()

    @property
    def stops(self) -> tuple[int, ...]:
        """The ids that end a completion: ``stop``, or else eos and eot."""
        found = (token for token in (self.eos, self.eot) if token is not None)
        return self.stop or tuple(found)

    @classmethod
    def of(cls, model: Any) -> SpecialTokens:
        """What ``model.config`` says; raises ``UsageProblem`` where it names no mask token."""
        config = model.config
        mask = getattr(config, "mask_token_id", None)
        if mask is None:
            raise UsageProblem(
                "the mask token of this checkpoint is not known",
                "its config.json names no mask_token_id, and no registered family has one inside "
                "its vocabulary",
                'set "mask_token_id" in its config.json',
            )
        eos = getattr(config, "eos_token_id", None)
        several = tuple(eos) if isinstance(eos, list | tuple) else ()
        return cls(
            mask=mask,
            eos=several[0] if several else eos,
            eot=getattr(config, "eot_token_id", None),
            pad=getattr(config, "pad_token_id", None),
            stop=several,
        )
