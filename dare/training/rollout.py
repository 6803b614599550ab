"""One rollout batch: prompts, sampled completions, rewards.

Everything is keyed by (run seed, stream, rollout step, global sample id), so a batch does not
depend on how many processes share the work or on how it is cut into generation batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from dare.algorithms.base import RolloutBatch, completion_mask
from dare.config import RunConfig
from dare.diffusion.keys import RunKey
from dare.errors import UsageProblem
from dare.models.special import SpecialTokens
from dare.models.tokens import encode_prompt
from dare.sampling.decode import generate
from dare.tasks.base import Item, Task
from dare.training.data import TrainingStream
from dare.training.ranks import summed


@dataclass(frozen=True)
class RolloutFacts:
    """What a rollout batch cost and scored, for the training curve."""

    completions: int
    tokens: int
    nfe: int
    reward_mean: float
    accuracy: float
    missing_rewards: int

    def of_all_processes(self) -> RolloutFacts:
        """The same of the whole batch, where several processes share it."""
        known = self.completions - self.missing_rewards
        mine = [
            float(self.completions),
            float(self.tokens),
            float(self.nfe),
            self.reward_mean * known if known else 0.0,
            self.accuracy * self.completions,
            float(self.missing_rewards),
        ]
        total = summed(mine)
        if total == mine:  # nothing was added: keep the last digits
            return self
        completions, tokens, nfe, reward, accuracy, missing = total
        known = int(completions - missing)
        return RolloutFacts(
            completions=int(completions),
            tokens=int(tokens),
            nfe=int(nfe),
            reward_mean=reward / known if known else float("nan"),
            accuracy=accuracy / completions,
            missing_rewards=int(missing),
        )


@dataclass(frozen=True)
class RolloutSource:
    """Draws rollout batches for one process of a run."""

    config: RunConfig
    task: Task
    tokenizer: PreTrainedTokenizerFast
    stream: TrainingStream
    run_key: RunKey
    special: SpecialTokens
    eos_policy: str
    rank: int = 0
    world_size: int = 1

    def collect(self, model: nn.Module, step: int) -> tuple[RolloutBatch, RolloutFacts]:
        """The rollout batch of ``step``: this process's whole groups, group members adjacent."""
        training = self.config.training
        assert training is not None
        group, prompts_total = training.num_generations, training.prompts_per_update
        share = prompts_total // self.world_size
        first = self.rank * share
        items = self.stream.items(step, prompts_total)[first : first + share]
        rows = [item for item in items for _ in range(group)]
        sample_ids = torch.arange(first * group, (first + share) * group)
        prompts = [self._encode(item) for item in items]
        repeated = [prompt for prompt in prompts for _ in range(group)]
        keys = [self.run_key.at("rollout", step, int(sample)) for sample in sample_ids]
        special = self.special
        out = generate(model, repeated, self.config.rollout, keys, special)
        texts = [self._decode(row) for row in out.tokens.tolist()]
        rewards = self._rewards(rows, texts)
        facts = self._facts(rows, texts, rewards, int(out.nfe.sum()), out.tokens.numel())
        if self.config.control == "shuffled-rewards":
            rewards = shuffled_within_groups(rewards, group, self.run_key, step, first)
        filler = special.mask if special.pad is None else special.pad
        prompt_ids, prompt_mask = left_pad(repeated, filler)
        device = out.tokens.device
        batch = RolloutBatch(
            prompt_ids=prompt_ids.to(device),
            prompt_mask=prompt_mask.to(device),
            completion_ids=out.tokens,
            completion_mask=completion_mask(out.tokens, special.eos, self.eos_policy),
            rewards=rewards.to(device),
            group_size=group,
            sample_ids=sample_ids,
            step=step,
            commit_step=out.commit_step,
        )
        return batch, facts

    @property
    def _protocol(self) -> str:
        return self.config.task.protocol

    def _encode(self, item: Item) -> list[int]:
        training = self.config.training
        limit = training.max_prompt_length if training is not None else None
        ids = encode_prompt(self.tokenizer, self.task.prompt(item, self._protocol))
        return ids if limit is None else ids[-limit:]

    def _decode(self, row: list[int]) -> str:
        """The whole canvas as text, special tokens dropped: what d1's rewards see."""
        return str(self.tokenizer.decode(row, skip_special_tokens=True))

    def _rewards(self, rows: Sequence[Item], texts: list[str]) -> Tensor:
        """The sum of the task's reward functions, (B,); a missing one makes the sum NaN.

        Raises ``UsageProblem`` for a function that does not give one value per completion.
        """
        columns: dict[str, list[object]] = {
            "item": list(rows),
            "gold": [item.gold for item in rows],
        }
        for name in {key for item in rows for key in item.meta}:
            columns[name] = [item.meta.get(name) for item in rows]
        for name in {key for item in rows if isinstance(item.gold, dict) for key in item.gold}:
            columns[name] = [item.gold.get(name) for item in rows]
        questions = [item.question for item in rows]
        total = torch.zeros(len(rows), dtype=torch.float64)
        for function in self.task.rewards(self._protocol):
            values = function(prompts=questions, completions=texts, **columns)
            if len(values) != len(rows):
                raise UsageProblem(
                    f"the reward function '{getattr(function, '__name__', function)}' returned "
                    f"{len(values)} values for {len(rows)} completions",
                    "it must return one number, or None, for each of them",
                    f"mend the rewards of task '{self.task.name}'",
                )
            total += torch.tensor(
                [float("nan") if value is None else value for value in values], dtype=torch.float64
            )
        return total.float()

    def _facts(
        self, rows: Sequence[Item], texts: list[str], rewards: Tensor, nfe: int, tokens: int
    ) -> RolloutFacts:
        grades = [self.task.grade(i, t, self._protocol) for i, t in zip(rows, texts, strict=True)]
        known = rewards[rewards.isfinite()]
        return RolloutFacts(
            completions=len(rows),
            tokens=tokens,
            nfe=nfe,
            reward_mean=float(known.mean()) if len(known) else float("nan"),
            accuracy=sum(grade.correct for grade in grades) / max(1, len(grades)),
            missing_rewards=len(rewards) - len(known),
        )


def shuffled_within_groups(
    rewards: Tensor, group: int, run_key: RunKey, step: int, first_prompt: int
) -> Tensor:
    """The negative control: every group keeps its rewards but not whose they are."""
    shuffled = rewards.clone().view(-1, group)
    for row in range(len(shuffled)):
        generator = run_key.at("control", step, first_prompt + row).generator()
        shuffled[row] = shuffled[row][torch.randperm(group, generator=generator)]
    return shuffled.view(-1)


def left_pad(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids (B, P) padded on the left, and the mask of real tokens (B, P) bool."""
    width = max((len(row) for row in rows), default=0)
    ids = torch.full((len(rows), width), pad, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        if row:
            ids[index, width - len(row) :] = torch.tensor(row, dtype=torch.int64)
            mask[index, width - len(row) :] = True
    return ids, mask
