"""Comparability gates: what must be equal before two numbers may be set against each other.

What is read from a record, by block:

    model      name, revision, weights_sha256
    data       task, n, item_ids_sha256, subset (text; only for a declared part of the set)
    prompt     protocol, sha256, wording ("paper", or "own" for our equivalent text)
    decode     the sampler's settings in SamplerConfig's names
    scoring    grader
    selection  rule
    config     algorithm, training (None: not trained)
    paper      id
    env        accelerator

A thing that the paper does not state cannot fail a gate; it is listed as unspecified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dare.config import canonical_json
from dare.results.claims import Claim
from dare.results.record import Record
from dare.sampling.config import LATER

NOT_RECORDED = "not recorded"
BUDGET_TOLERANCE = 0.10


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition that differs, and the command that would remove the difference."""

    field: str
    claimed: Any
    ours: Any
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.field}: claimed {_short(self.claimed)}, ours {_short(self.ours)}"


@dataclass(frozen=True, slots=True)
class GateReport:
    """``differing`` must be empty for a verdict; ``subset`` names a declared part of the items."""

    differing: tuple[Gate, ...]
    unspecified: tuple[str, ...]
    subset: str | None = None
    notes: tuple[str, ...] = ()


def check_claim(
    claim: Claim, record: Record, *, hardware_allowance: float | None = None
) -> GateReport:
    """Is ``record`` a measurement of what ``claim`` is about?

    ``hardware_allowance`` (points, or None for none) lets another accelerator class pass.
    """
    checks = _Checks(claim, record)
    checks.run(hardware_allowance)
    return GateReport(
        tuple(checks.differing), tuple(checks.unspecified), checks.subset, tuple(checks.notes)
    )


class _Checks:
    """Collects the differences between one claim and one record."""

    def __init__(self, claim: Claim, record: Record) -> None:
        self.claim, self.record = claim, record
        self.differing: list[Gate] = []
        self.unspecified: list[str] = []
        self.notes: list[str] = []
        self.subset: str | None = None

    def run(self, hardware_allowance: float | None) -> None:
        claim, record = self.claim, self.record
        if record.status != "complete":
            ours = f"{record.status}: {record.reason}".rstrip(": ")
            self._differs("status", "complete", ours, f"{self._reproduce()} --resume")
        self._equal("model", claim.model, record.model.get("name"), self._reproduce())
        revision = record.model.get("revision")
        self._equal("model revision", claim.revision, revision, self._reproduce())
        self._method()
        self._equal("task", claim.task, record.data.get("task"), self._reproduce())
        self._items()
        self._prompt()
        self._decode()
        self._selection()
        if claim.metric not in [metric.name for metric in record.metrics]:
            have = ", ".join(metric.name for metric in record.metrics)
            self._differs("metric", claim.metric, have, self._rescore())
        self._budget()
        self._hardware(hardware_allowance)

    def _method(self) -> None:
        claim, record = self.claim, self.record
        algorithm = record.config.get("algorithm")
        trained = record.budget.updates > 0
        if not claim.trained:
            if trained:
                ours = f"{algorithm}, {record.budget.updates} updates"
                self._differs("training", "none (released checkpoint)", ours, self._reproduce())
            return
        if not trained:
            ours = "none: an evaluation of the checkpoint as it is"
            self._differs("training", claim.row, ours, self._reproduce())
            return
        # The algorithm, not the paper: d1's own row is SFT and diffu-GRPO, which is another method.
        if claim.method != algorithm:
            said = str(algorithm or NOT_RECORDED)
            self._differs("method", claim.method, said, self._reproduce())
        control = record.config.get("control", "none")
        if control != "none":
            self._differs("control", "none", control, self._reproduce())
        scale = record.config.get("scale", "paper")
        if scale != "paper":
            self._differs("scale", "paper", scale, self._reproduce())
        changed = {
            path: origin
            for path, origin in record.origins.items()
            if origin.startswith(("--set", "--config", "environment"))
        }
        if changed:
            self._differs("settings", "the reproduction's", ", ".join(changed), self._reproduce())
        if not claim.budget:
            self.unspecified.append("training budget")

    def _items(self) -> None:
        claim, data = self.claim, self.record.data
        n, subset = data.get("n"), data.get("subset")
        if subset:
            self.subset = str(subset)
            return
        if claim.item_ids_sha256 is not None:
            ours = data.get("item_ids_sha256")
            self._equal("items", claim.item_ids_sha256, ours, self._reproduce())
        elif claim.n_items is None:
            self.unspecified.append("number of items")
        elif claim.n_items != n:
            self._differs("items", f"{claim.n_items} items", f"{n} items", self._reproduce())

    def _prompt(self) -> None:
        claim, record = self.claim, self.record
        if claim.protocol is None:
            self.unspecified.append("protocol (prompt, extraction, grading)")
            return
        ours = record.prompt.get("protocol")
        self._equal("protocol", claim.protocol, ours, self._rescore())
        wording = record.prompt.get("wording")
        if wording != "paper":
            claimed = f"the text of protocol {claim.protocol}"
            ours = "our own equivalent text" if wording == "own" else NOT_RECORDED
            remedy = f"dare rescore FILE --task {claim.task} --protocol {claim.protocol}"
            self._differs("prompt wording", claimed, ours, f"{remedy}  (the authors' generations)")

    def _decode(self) -> None:
        claim, decode = self.claim, self.record.decode
        if claim.gen_length is None:
            self.unspecified.append("generation length")
        stated = {"gen_length": claim.gen_length, **claim.decode}
        for name, value in stated.items():
            if value is not None:
                remedy = f"{self._reproduce()} --set evaluation.{name}={value}"
                self._equal(f"decode.{name}", value, decode.get(name), remedy)
        # What nobody states is the plain sampler: caches and adaptive rules are not.
        for name in sorted(set(decode) & set(LATER) - set(stated)):
            remedy = f"{self._reproduce()}  (without evaluation.{name})"
            self._differs(f"decode.{name}", "not used", decode[name], remedy)

    def _selection(self) -> None:
        claim = self.claim
        if not claim.trained:
            return
        if claim.selection is None:
            self.unspecified.append("checkpoint selection")
            return
        claimed = selection_rule(claim.selection)
        ours = selection_rule(str(self.record.selection.get("rule") or NOT_RECORDED))
        if claimed != ours:
            remedy = f"dare show {claim.id.split('/')[0]} --deviations  (why the rules differ)"
            self._differs("selection", claim.selection, ours, remedy)

    def _budget(self) -> None:
        spent = self.record.budget.model_dump()
        for unit, amount in self.claim.budget.items():
            ours = spent.get(unit)
            if ours is None or abs(ours - amount) > BUDGET_TOLERANCE * amount:
                self._differs(f"budget.{unit}", amount, ours, self._reproduce())

    def _hardware(self, allowance: float | None) -> None:
        claim = self.claim
        if claim.hardware is None:
            self.unspecified.append("hardware")
            return
        ours = self.record.env.get("accelerator")
        if ours == claim.hardware:
            return
        if allowance is None:
            self._differs("hardware", claim.hardware, ours, self._reproduce())
        else:
            self.notes.append(
                f"hardware differs ({claim.hardware} / {ours}): {allowance:g} points allowed"
            )

    def _equal(self, field: str, claimed: Any, ours: Any, remedy: str) -> None:
        if claimed is None:
            self.unspecified.append(field)
        elif claimed != ours:
            self._differs(field, claimed, ours, remedy)

    def _differs(self, field: str, claimed: Any, ours: Any, remedy: str) -> None:
        ours = NOT_RECORDED if ours is None else ours
        self.differing.append(Gate(field, claimed, ours, remedy))

    def _reproduce(self) -> str:
        claim = self.claim
        paper = claim.id.split("/")[0]
        return f"dare reproduce {paper} --model {claim.model} --task {claim.task} --scale paper"

    def _rescore(self) -> str:
        protocol = self.claim.protocol or "PROTOCOL"
        return f"dare rescore RUN --task {self.claim.task} --protocol {protocol}"


def selection_rule(text: str) -> str:
    """The class of a selection rule that is described in words."""
    lower = text.lower()
    if "best" in lower and "test" in lower:
        return "best on test"
    if "best" in lower and ("dev" in lower or "valid" in lower):
        return "best on dev"
    if "final" in lower or "last" in lower:
        return "final step"
    return text


def conditions(record: Record) -> dict[str, Any]:
    """What two arms of a comparison must have in common, by name."""
    config = record.config
    task = config.get("task") if isinstance(config.get("task"), Mapping) else {}
    return {
        "base model": record.model.get("weights_sha256") or record.model.get("name"),
        "task": record.data.get("task"),
        "items": record.data.get("item_ids_sha256"),
        "training data": [task.get("train_split"), task.get("protocol")] if task else None,
        "protocol": record.prompt.get("protocol"),
        "prompt": record.prompt.get("sha256"),
        "decode": record.decode,
        "grader": record.scoring.get("grader"),
        "selection": selection_rule(str(record.selection.get("rule") or NOT_RECORDED)),
        "hardware": record.env.get("accelerator"),
        "status": record.status,
    }


def differing(
    first: Mapping[str, Any], second: Mapping[str, Any], remedy: Callable[[str], str] = lambda _: ""
) -> list[Gate]:
    """The conditions in which two runs differ."""
    return [
        Gate(name, value, second.get(name), remedy(name))
        for name, value in first.items()
        if value != second.get(name)
    ]


def same_recipe(records: Sequence[Record]) -> list[Gate]:
    """Records that are to be seeds of one run must differ in the seed alone."""
    gates: list[Gate] = []
    first = records[0]
    for other in records[1:]:
        pairs = {
            "configuration of the runs": (_without_seed(first), _without_seed(other)),
            **{
                f"{name} of the runs": (value, conditions(other).get(name))
                for name, value in conditions(first).items()
            },
        }
        gates += [
            Gate(name, a, b, "name runs of one configuration")
            for name, (a, b) in pairs.items()
            if a != b and name not in [gate.field for gate in gates]
        ]
    return gates


def _without_seed(record: Record) -> str:
    config = dict(record.config)
    if isinstance(config.get("training"), Mapping):
        config["training"] = {k: v for k, v in config["training"].items() if k != "seed"}
    return canonical_json({k: v for k, v in config.items() if k != "seed"})


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= 72 else f"{text[:60]}... ({len(text)} characters)"
