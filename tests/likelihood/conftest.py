"""A small LLaDA with weights large enough that its predictions differ from uniform."""

from __future__ import annotations

import pytest
import torch

from dare.models.llada import LLaDAConfig, LLaDAModelLM

EOS, MASK = 3, 4


@pytest.fixture(scope="session")
def model():
    config = LLaDAConfig(
        vocab_size=5,
        d_model=16,
        n_layers=2,
        n_heads=2,
        mlp_hidden_size=32,
        max_sequence_length=32,
        rope_theta=100.0,
        mask_token_id=MASK,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    network = LLaDAModelLM(config).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0.0, 0.5, generator=generator)
    return network
