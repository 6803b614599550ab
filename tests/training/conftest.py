"""Small runs for the trainer's tests."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from dare import reproductions
from dare.config import RunConfig

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
torch.set_num_threads(1)

SmallRun = Callable[..., RunConfig]


@pytest.fixture(scope="session")
def small_run() -> SmallRun:
    """A few updates of a paper's ci scale: ``small_run("d1", rollouts=3, seed=0)``."""

    def build(paper: str, rollouts: int = 3, **settings: object) -> RunConfig:
        values = {
            "training.max_steps": 2 * rollouts,
            "training.per_device_train_batch_size": 32,
            "training.save_steps": 1,
            "task.eval_limit": 20,
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        config, _ = reproductions.load(paper).resolve("ci", layers={"test": values})
        return config

    return build
