"""The flags that make an engine draft so many tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_METHODS = {"eagle3": "eagle3", "eagle1": "eagle", "mtp": "mtp", "dflash": "dflash"}
_SGLANG = {"eagle3": "EAGLE3", "eagle1": "EAGLE", "mtp": "EAGLE", "dflash": "DFLASH"}


def engine_settings(
    switches: Mapping[str, Any],
    checkpoint: str,
    k: int,
    tree: Mapping[str, Any] | None = None,
    schedule: Sequence[tuple[int, int]] = (),
) -> dict[str, str]:
    """Flags of vLLM (0.32) and SGLang (0.5.23) by engine; {} where nothing is to be drafted.

    SGLang counts the last known token among its draft tokens: a chain of K tokens is K steps, top-k 1 and K + 1 draft tokens. vLLM
    drafts chains. tree: a dynamic tree as `steps`, `topk` and `nodes` (without the root), which SGLang builds. schedule: batch size
    and its best K, for vLLM's schedule where they differ; a K holds up to the next batch size that was planned.
    """
    form = str(switches.get("layer_form", "eagle3"))
    found: dict[str, str] = {}
    if k >= 1:
        wanted: dict[str, Any] = {"method": _METHODS.get(form, "eagle3"), "num_speculative_tokens": k}
        if form != "mtp":
            wanted["model"] = checkpoint
        if form == "eagle3" and switches.get("carry") == "none":
            wanted["parallel_drafting"] = True
        if len({best for _, best in schedule}) > 1:
            wanted["num_speculative_tokens"] = max(best for _, best in schedule)
            wanted["num_speculative_tokens_per_batch_size"] = _ranges(schedule)
        found["vllm"] = f"--speculative-config '{json.dumps(wanted)}'"
    if k >= 1 or tree is not None:
        steps, topk, nodes = (k, 1, k) if tree is None else (tree["steps"], tree["topk"], tree["nodes"])
        path = "" if form == "mtp" else f" --speculative-draft-model-path {checkpoint}"
        found["sglang"] = (
            f"--speculative-algorithm {_SGLANG.get(form, 'EAGLE3')}{path} --speculative-num-steps {steps}"
            f" --speculative-eagle-topk {topk} --speculative-num-draft-tokens {nodes + 1}"
        )
    return found


def _ranges(schedule: Sequence[tuple[int, int]]) -> list[list[int]]:
    """[first batch size, last, K], the first range from 1 on."""
    ordered = sorted(schedule)
    starts = [1, *(batch for batch, _ in ordered[1:])]
    ends = [*(batch - 1 for batch, _ in ordered[1:]), ordered[-1][0]]
    return [[start, end, best] for start, end, (_, best) in zip(starts, ends, ordered, strict=True)]
