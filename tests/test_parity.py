"""The drafter and the chain against the peers' own modules: golden tensors made by tests/golden/make_*.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nnsight
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from driftscope.chain.chain import Chain, Text, chain_inputs
from driftscope.chain.observe import observe
from driftscope.chain.prefix import prefix_pass
from driftscope.checkpoints import open_checkpoint
from driftscope.drafter import build_drafter
from driftscope.drafter.attention import Window
from tests.closeness import assert_same
from tests.double import SINGLE, doubled
from tests.support import of_golden

FILES = sorted((Path(__file__).parent / "golden").glob("*.safetensors"))


@dataclass(frozen=True)
class Golden:
    """A golden file; see tests/golden/golden.py."""

    config: dict[str, Any]
    overrides: dict[str, Any]
    steps: int
    precision: dict[str, Any]
    stored: dict[str, Tensor]
    tensors: dict[str, Tensor]

    @classmethod
    def load(cls, path: Path) -> Golden:
        with safe_open(path, "pt") as file:
            metadata = {key: json.loads(value) for key, value in file.metadata().items()}
            every = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        stored = {name.removeprefix("checkpoint."): t for name, t in every.items() if name.startswith("checkpoint.")}
        tensors = {name: t for name, t in every.items() if not name.startswith("checkpoint.")}
        return cls(metadata["config"], metadata["overrides"], metadata["steps"], metadata["precision"], stored, tensors)

    def assert_peers(self, seen: Tensor, wanted: Tensor, name: str, step: int) -> None:
        """`seen`, in float64, is what the peer made at step `step`, but for the rounding of the peer's own sums."""
        made = self.precision
        assert seen.dtype == torch.float64
        assert_same(
            seen,
            wanted,
            f"{name} at step {step}",
            terms=made["terms"],
            sums=made["sums"] * step,
            dtype={"float32": SINGLE}[made["dtype"]],
        )


@pytest.mark.numeric("plain")
@pytest.mark.supports("equal to", of_golden)
@pytest.mark.supports("run", lambda path: of_golden(path) and of_golden(path)[0])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_carry_and_logits_equal_the_peers_at_every_anchor_and_step(path: Path, tmp_path: Path):
    golden = Golden.load(path)
    save_file(golden.stored, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(golden.config))
    opened = open_checkpoint(tmp_path, overrides=golden.overrides)
    config = opened.config
    # Read in the dtypes of the files, run in float64.
    with doubled():
        none = torch.zeros(config.vocab_size, config.target_hidden_size)
        drafter = build_drafter(
            config,
            opened.weights,
            target_embedding=golden.tensors.get("embedding", none).float(),
            target_head=golden.tensors.get("head", none).float(),
        )
        assert not opened.unused
        if "t2d" in golden.stored:
            assert torch.equal(drafter.target_ids, golden.stored["t2d"].nonzero()[:, 0])
        wanted = {name: golden.tensors[name] for name in ("carry", "logits")}
        anchors, depth = wanted["carry"].shape[:2]
        # The whole text is continuation, so that the first anchor, which has no prefix, is among them.
        text = Text(golden.tensors["token_ids"].long(), 1, golden.tensors["features"].float())
        windows = [Window(size) for size in config.sliding_window or [None] * config.num_layers]
        passed = prefix_pass(drafter, text, windows, sinks=(0,), horizon=depth)
        inputs = chain_inputs(text, passed.prefix, windows, anchors=torch.arange(anchors), depth=depth, feed="text")
        seen = observe(
            nnsight.NNsight(Chain(drafter)),
            inputs,
            lambda step, rows, values: {name: values[name].clone() for name in wanted},
            sites=list(wanted),
        )
        golden.assert_peers(passed.baseline.carry[:anchors], wanted["carry"][:, 0], "carry of the prefix pass", 1)
        for step in range(golden.steps):
            for name, tensor in wanted.items():
                golden.assert_peers(seen[step][name], tensor[:, step], name, step + 1)


def test_golden_files_are_there_for_every_peer():
    peers = {path.stem.partition("-")[0] for path in FILES}
    assert peers == {"eagle1", "griffin", "specforge", "speculators"}
