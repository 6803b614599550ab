"""How layers of settings lie over each other when a setting has parts."""

from __future__ import annotations

import pytest

from dare import reproductions
from dare.config import resolve

WHOLE = {"rule": "dynamic", "threshold": 0.95}


def resolved(layers: dict[str, dict[str, object]]):  # type: ignore[no-untyped-def]
    base = reproductions.load("d1").configs("tiny", None, "tiny-sdar")
    config, origins = resolve(base, layers)
    return config.evaluation.selection, origins


def test_a_part_of_a_stronger_layer_stays() -> None:
    parts = {f"evaluation.selection.{name}": value for name, value in WHOLE.items()}
    weak = {"evaluation.selection": WHOLE, **parts}
    strong = {"evaluation.selection.threshold": 0.5}
    selection, origins = resolved({"--sampler": weak, "--set": strong})
    assert (selection.rule, selection.threshold) == ("dynamic", 0.5)
    assert origins["evaluation.selection.threshold"] == "--set"
    assert origins["evaluation.selection.rule"] == "--sampler"
    assert WHOLE == {"rule": "dynamic", "threshold": 0.95}


@pytest.mark.parametrize("rule", ["edit", "klass", "schedule"])
def test_a_whole_takes_the_place_of_the_parts_below_it(rule: str) -> None:
    selection, origins = resolved({"--set": {"evaluation.selection": {"rule": rule}}})
    assert selection.rule == rule
    # The family's threshold of 1 is gone with its rule.
    assert getattr(selection, "threshold", None) in (None, 0.7)
    assert origins["evaluation.selection"] == "--set"
