"""DS106 and DS107: texts of their own, wrapped otherwise or longer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from driftscope.findings import DEFAULTS, Assessment, Finding, assess
from tests.drafters import HEALTHY, Shard, write_drafter


def rows(names: dict[str, float], prompt: str, number: int) -> Shard:
    """Steps, heads and conditions: accepted tokens per anchor of each variant."""
    luck = np.random.default_rng(number).uniform(0.9, 1.1)
    common = {"feed": "drafted", "prompt": prompt, "step": 1, "anchors": 100}
    steps, conditions = [], []
    for name, length in names.items():
        accepted = round(100 * length * luck)
        counts = {"matches": accepted, "reached": 100, "accepted": accepted, "sum/log_growth": 0.0}
        served = {"served_rounds": 100, "served_accepted": accepted, "served_accepted_sq": accepted}
        steps.append({"variant": name, **common, **counts, **served})
        conditions.append(
            {"variant": name, "prompt": prompt, "prompt_tokens": 9, "text_tokens": 60, "double_bos": False}
        )
    heads = [{"variant": name, **common, "layer": 0, "head": 0, "excess/self_generated": 1.0} for name in names]
    return {"steps": pd.DataFrame(steps), "heads": pd.DataFrame(heads), "conditions": pd.DataFrame(conditions)}


def judge(folder: Path, probe: str, names: dict[str, float], parameters: Any = None, **how: Any) -> Assessment:
    def shards(prompt: str, number: int) -> dict[str, Shard]:
        content = rows(names, prompt, number)
        told = [(name, (parameters or {}).get(name, "{}")) for name in names]
        variants = [{"variant": name, "probe": probe, "kind": "config", "parameters": text} for name, text in told]
        return {probe: {**content, "variants": pd.DataFrame(variants)}}

    return assess(write_drafter(folder, shards=shards, **how), DEFAULTS, resamples=200)


def found(assessment: Assessment, code: str) -> Finding:
    (finding,) = [finding for finding in assessment.findings if finding.code == code]
    return finding


def test_the_published_template_ablation(tmp_path: Path) -> None:
    pre = {"regular": 1.74, "no_bos": 1.28, "no_template": 0.69, "no_bos_no_template": 0.34}
    names = {f"template/{name}": length for name, length in pre.items()}
    finding = found(judge(tmp_path / "pre", "template", names), "DS106")
    assert re.match(
        r"Of the accepted length under the model's own template, the drafter keeps (19|20)% under no_bos_no_template",
        finding.statement,
    )
    assert [part.value for part in finding.evidence] == pytest.approx([0.34 / 1.74, 0.69 / 1.74, 1.28 / 1.74], abs=0.02)
    post = {"template/regular": 1.73, "template/no_bos": 1.65, "template/no_template": 1.61}
    assert "DS106" in judge(tmp_path / "post", "template", post).clear


def test_few_prompts_do_not_tell_templates_apart(tmp_path: Path) -> None:
    names = {"template/regular": 2.0, "template/no_bos": 0.5}
    result = judge(tmp_path / "a", "template", names, fake=HEALTHY.changed(prompts=4))
    assert "DS106" in {part.code for part in result.unmeasured}


def length_variants(kept: dict[str, dict[int, float]]) -> tuple[dict[str, float], dict[str, str]]:
    names, told = {}, {}
    for policy, shares in kept.items():
        for length, share in shares.items():
            name = f"length/{length}/{policy}"
            names[name] = share
            window = "null" if policy == "full" else "512"
            told[name] = f'{{"length": {length}, "policy": "{policy}", "window": {window}}}'
    return names, told


def test_a_break_is_found_with_the_window_that_holds(tmp_path: Path) -> None:
    names, told = length_variants(
        {"full": {512: 1.3, 2048: 1.0, 20480: 0.08}, "window": {512: 1.3, 2048: 1.0, 20480: 0.9}}
    )
    finding = found(judge(tmp_path / "a", "length", names, told, **{"rope.max_position": 2048}), "DS107")
    assert finding.statement == (
        "At 20,480 tokens the drafter keeps 6% of the accepted length at 512; window would hold it;"
        " its config names 2,048 positions."
    )


def test_a_drafter_that_holds_its_length_is_clear(tmp_path: Path) -> None:
    names, told = length_variants({"full": {512: 1.3, 2048: 1.0}})
    assert "DS107" in judge(tmp_path / "a", "length", names, told).clear
