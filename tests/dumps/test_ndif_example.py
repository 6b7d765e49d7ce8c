"""The NDIF example, by nnsight's own simulation of a request: what it writes are the target's states."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import torch

from driftscope.api import capture
from driftscope.target.model import load_target
from tests.tiny_pair import save_pair

EXAMPLE = Path(__file__).parents[2] / "examples" / "ndif_capture.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("ndif_capture", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_states_of_a_simulated_request_are_the_targets(tmp_path: Path) -> None:
    pair = save_pair(tmp_path)
    target = load_target(pair.target)
    own = capture(target, out=tmp_path / "own", prompts=pair.prompts, layers=(1, 2, 3), max_new_tokens=24).captures()
    texts = tmp_path / "texts.jsonl"
    lines = [json.dumps({"id": record.prompt_id, "token_ids": record.token_ids.tolist()}) for record in own]
    texts.write_text("\n".join(lines))
    given = [str(texts), str(tmp_path / "states"), "--target", str(pair.target), "--layers", "1,2,3,4"]
    example().main([*given, "--remote", "local"])
    made = capture(
        target, source=tmp_path / "states", out=tmp_path / "read", layers=(1, 2, 3, 4), prompts=pair.prompts,
        whole_target=True,
    )  # fmt: skip
    for left, right in zip(own, made.captures(), strict=True):
        assert torch.equal(left.final, right.final)
        assert all(torch.equal(left.boundaries[b], right.boundaries[b]) for b in (1, 2, 3))
