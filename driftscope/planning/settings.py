"""The flags that make an engine draft so many tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_METHODS = {"eagle3": "eagle3", "eagle1": "eagle", "mtp": "mtp", "dflash": "dflash"}
_SGLANG = {"eagle3": "EAGLE3", "eagle1": "EAGLE", "mtp": "EAGLE", "dflash": "DFLASH"}


def engine_settings(
    switches: Mapping[str, Any], checkpoint: str, k: int, tree: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Flags of vLLM (0.32) and SGLang (0.5.23) by engine; {} where nothing is to be drafted.

    SGLang counts the last known token among its draft tokens: a chain of K tokens is K steps, top-k 1 and K + 1 draft tokens. vLLM
    drafts chains. tree: a dynamic tree as `steps`, `topk` and `nodes` (without the root), which SGLang alone builds.
    """
    if k < 1 and tree is None:
        return {}
    form = str(switches.get("layer_form", "eagle3"))
    found: dict[str, str] = {}
    if k >= 1:
        wanted: dict[str, Any] = {"method": _METHODS.get(form, "eagle3"), "num_speculative_tokens": k}
        if form != "mtp":
            wanted["model"] = checkpoint
        if form == "eagle3" and switches.get("carry") == "none":
            wanted["parallel_drafting"] = True
        found["vllm"] = f"--speculative-config '{json.dumps(wanted)}'"
    steps, topk, nodes = (k, 1, k) if tree is None else (tree["steps"], tree["topk"], tree["nodes"])
    path = "" if form == "mtp" else f" --speculative-draft-model-path {checkpoint}"
    found["sglang"] = (
        f"--speculative-algorithm {_SGLANG.get(form, 'EAGLE3')}{path} --speculative-num-steps {steps}"
        f" --speculative-eagle-topk {topk} --speculative-num-draft-tokens {nodes + 1}"
    )
    return found
