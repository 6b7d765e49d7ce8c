"""The plan for a large target is counted as the code works, and the docs hold what it says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import torch

from driftscope.drafter.attention import Prefix
from driftscope.drafter.model import Drafter
from driftscope.from_engines.make import capture_with_target
from tests.tiny_target import tiny_target

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
plan = importlib.import_module("plan")


def test_weights_and_rows_are_those_of_the_drafter() -> None:
    with torch.device("meta"):
        drafter = Drafter(plan.DRAFTER)
        head = plan.DRAFTER.num_kv_heads
        own = Prefix.like(torch.empty(1, head, 192), torch.empty(1, head, 128), 10)
    brought = sum(p.numel() for name, p in drafter.named_parameters() if name not in ("embed_tokens.weight",))
    lent = plan.DRAFTER.head == "own"
    assert plan.drafter_weights(plan.DRAFTER) == brought
    assert lent
    assert plan.row_bytes(plan.DRAFTER, 4) * 10 == 4 * (own.keys.numel() + own.values.numel())


def test_bytes_are_those_of_a_capture_folder(tmp_path: Path) -> None:
    target = tiny_target()
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3 w4 w5\n\nw7 w8 w9 w10 w11\n")
    made = capture_with_target(
        target, tmp_path / "captures", prompts=prompts, boundaries=(1, 2, 3, 4), max_new_tokens=40
    )
    lengths = {text.length for text in made.texts}
    (length,) = lengths
    work = plan.Work(prompts=2, prompt_tokens=5, new_tokens=length - 5)
    counted = plan.capture_bytes(work, target.hidden_size, target.num_layers, states=4, size=4)
    stored = sum(
        tensor.numel() * tensor.element_size()
        for file in made.folder.rglob("*.safetensors")
        for tensor in plan_tensors(file)
    )
    assert counted == stored


def plan_tensors(file: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file

    return list(load_file(file).values())


def test_the_docs_hold_the_table() -> None:
    table = plan.markdown(plan.plan(plan.KIMI, plan.DRAFTER, plan.Work(), plan.Machine()))
    assert table in (ROOT / "docs" / "large-targets.md").read_text(encoding="utf-8")
    assert 1.0e12 < plan.KIMI.weights(plan.KIMI.experts) < 1.1e12
    assert 3.0e10 < plan.KIMI.weights(plan.KIMI.active) < 3.5e10
