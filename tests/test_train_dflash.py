"""The trainer of the example block drafter: it trains the drafter that driftscope runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from driftscope.chain.block import run_blocks
from driftscope.chain.chain import Text
from driftscope.chain.prefix import prefix_pass
from driftscope.checkpoints import open_state_dict
from driftscope.drafter import build_drafter
from driftscope.drafter.attention import Prefix
from tests.closeness import assert_same

SIZE, VOCAB, DRAFT, BLOCK, LENGTH = 24, 40, 12, 4, 20
CONFIG: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "speculators_model_type": "dflash", "draft_vocab_size": DRAFT,
    "block_size": BLOCK, "aux_hidden_state_layer_ids": [1, 2, 3], "mask_token_id": 5,
    "transformer_layer_config": {
        "model_type": "qwen3", "hidden_size": SIZE, "intermediate_size": 32, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "vocab_size": VOCAB,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def trainer() -> Iterator[Any]:
    folder = str(Path(__file__).parents[1] / "examples" / "smollm2")
    sys.path.insert(0, folder)
    import train_dflash

    yield train_dflash
    sys.path.remove(folder)


def made(trainer: Any) -> tuple[Any, Tensor, Tensor, Tensor]:
    """A trainer with weights that are not small, the vocabulary, token ids [1, T] and features [1, T, 3, H]."""
    generator = torch.Generator().manual_seed(0)
    vocabulary = torch.randperm(VOCAB, generator=generator)[:DRAFT].sort().values
    embedding, head = (torch.randn(rows, SIZE, generator=generator) for rows in (VOCAB, DRAFT))
    torch.manual_seed(1)
    model = trainer.BlockTrainer(CONFIG, embedding, head)
    with torch.no_grad():
        for parameter in model.parameters():
            size = parameter.shape[-1] ** 0.5
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator) / size if parameter.ndim > 1 else parameter
            )
    ids = torch.randint(0, VOCAB, (1, LENGTH), generator=generator)
    return model, vocabulary, ids, torch.randn(1, LENGTH, 3, SIZE, generator=generator)


@pytest.mark.numeric("double")
def test_what_is_trained_is_what_is_run(trainer: Any):
    model, vocabulary, ids, features = made(trainer)
    import training

    opened = open_state_dict(training.published_state(model, model.head, vocabulary, VOCAB), CONFIG)
    assert (opened.layout, opened.unused, opened.config.block_size) == ("speculators-dflash", (), BLOCK)
    drafter: Any = build_drafter(
        opened.config, opened.weights, target_embedding=model.embedding, target_head=model.embedding
    )
    text = Text(ids[0], 4, features[0].flatten(1))
    passed = prefix_pass(drafter, text, drafter.windows, sinks=(0,), horizon=BLOCK)
    anchors = torch.arange(3, LENGTH - BLOCK - 1)
    prefix = [Prefix(layer.keys[:, : anchors[-1]], layer.values[:, : anchors[-1]]) for layer in passed.prefix]
    with torch.no_grad():
        run = run_blocks(drafter, text.features[anchors], anchors, ids[0, anchors + 1], prefix, drafter.windows)
        trained = model(ids, features, anchors[None])[0] @ model.head.T
    assert_same(run.unflatten(0, (-1, BLOCK)), trained)


def test_the_loss_falls_where_every_mask_can_be_told_from_the_known_token(trainer: Any):
    model, _, ids, features = made(trainer)
    sizes = torch.tensor([LENGTH])
    # After every position the target says the token of its own number in the draft vocabulary, which repeats every step.
    top_ids = (torch.arange(LENGTH) % 3).view(1, LENGTH, 1)
    features = torch.nn.functional.one_hot(top_ids[..., 0], SIZE).float()[:, :, None].expand(-1, -1, 3, -1)
    certain = torch.ones(1, LENGTH, 1)
    groups = trainer.optimizers(model, 0.02)
    drawn = torch.Generator().manual_seed(0)
    seen = []
    for _ in range(40):
        anchors = trainer.draw_anchors(sizes, 8, drawn)
        assert anchors.min() >= 0
        assert anchors.max() < LENGTH - 2
        loss, agreement = model.losses(ids, sizes, features, top_ids, certain, anchors, 0.8)
        loss.backward()
        for group in groups:
            group.step()
            group.zero_grad()
        seen.append((loss.item(), agreement))
    assert len(seen[0][1]) == BLOCK - 1
    assert seen[-1][0] < 0.5 * seen[0][0]
    assert seen[-1][1].mean() > 0.8
