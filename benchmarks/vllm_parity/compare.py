"""Does driftscope's served walk make the rounds that vLLM serves? Drafts, accepted tokens and counters, one by one.

    python benchmarks/vllm_parity/compare.py CHECKPOINT ... --target TARGET --vllm-python /path/to/vllm/bin/python

serve.py runs once for each checkpoint and number of speculative tokens, with the given interpreter; what it wrote is kept
below --work and used again. Then the texts that vLLM wrote are recorded here, every chain over them is run, and the walk is
laid beside vLLM's rounds. Exit code 1 if anything differs other than by a near tie of two logits.

As a control, EAGLE-3 drafters are also compared with the other carry: a comparison that a wrong switch passes shows nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rounds import Agreement, Chains, check_counters, compare_prompt, engine_rounds
from serve import digest
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.captures.record import record
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.measure import StepMeasure
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints import open_checkpoint
from driftscope.errors import DriftscopeError
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.target.model import Target, load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts

HERE = Path(__file__).parent
METHODS = {"eagle3": "eagle3", "eagle1": "eagle", "mtp": "mtp"}
"""vLLM's name for each form of drafter."""
ALSO = 3
"""Speculative tokens of the drafters named with --also."""


def chosen_prompts(target: Target, count: int, file: Path | None) -> list[dict[str, Any]]:
    """`count` of the shipped prompts, spread evenly over their categories, or of a file's."""
    kept, _ = tokenize_prompts(load_prompts(file), target.tokenizer, max_tokens=1024, min_tokens=2)
    places = [i * len(kept) // count for i in range(min(count, len(kept)))]
    return [{"id": kept[i].id, "token_ids": list(kept[i].token_ids)} for i in places]


def text_capture(target: Target, prompt: Mapping[str, Any], text: Sequence[int], boundaries: Sequence[int]) -> Capture:
    """The record of a text that an engine wrote."""
    ids, start = torch.tensor([*prompt["token_ids"], *text]), len(prompt["token_ids"])
    made = record(target, ids.tolist(), boundaries, first=start - 1, label=f"prompt {prompt['id']}")
    near_tie = torch.zeros(len(ids), dtype=torch.bool)
    near_tie[start - 1 : -1] = made.argmax[:-1] != ids[start:]
    return Capture(
        prompt_id=prompt["id"],
        category="",
        token_ids=ids,
        prompt_length=start,
        final=made.final,
        boundaries=made.boundaries,
        rms=made.rms,
        near_tie=near_tie,
        loop=torch.zeros(len(ids), dtype=torch.bool),
        stopped=False,
    )


def chains_over(pair: Pair, text: Capture, depth: int, tokens: int) -> Chains:
    """The chains of a run's clean, drafted feed, and how clearly each token was the first choice."""
    subject = Subject(pair, text, Settings(depth=depth, horizon=depth, sinks=(0,), anchors=tokens))
    plain = StepMeasure(pair.drafter, subject.text, subject.passed.baseline, (0,), subject.anchors)

    def measured(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        best = values["logits"].float().topk(2)
        second = pair.drafter.target_ids[best.indices[:, 1]]
        gap = best.values[:, 0] - best.values[:, 1]
        return {**plain(step, rows, values), "runner_up": second, "gap": gap}

    steps = to_numpy(subject.chains("drafted", measure=measured))
    drafted, second, gap = (np.stack([s[name] for s in steps], 1) for name in ("drafted", "runner_up", "gap"))
    return Chains(text.prompt_length, drafted, second, gap, joint(match_matrix(steps)).sum(1))


class Texts:
    """Recorded texts, each once: all drafters should leave the target's greedy text as it is."""

    def __init__(self) -> None:
        self.kept: dict[tuple[Any, ...], Capture] = {}

    def get(self, pair: Pair, prompt: Mapping[str, Any], text: Sequence[int]) -> Capture:
        boundaries = needed_boundaries(pair.config, pair.target.num_layers)
        key = (prompt["id"], tuple(text), boundaries, pair.target.name)
        if key not in self.kept:
            self.kept[key] = text_capture(pair.target, prompt, text, boundaries)
        return self.kept[key]


def compare(
    pair: Pair, served: Mapping[str, Any], prompts: Sequence[Mapping[str, Any]], texts: Texts, tokens: int
) -> dict[str, Any]:
    """One row of the results."""
    depth = served["speculative"]["num_speculative_tokens"]
    check_counters(served, depth)
    theirs = served["aux_boundaries"]
    if theirs is not None and tuple(theirs) != pair.config.aux_boundaries:
        raise DriftscopeError(
            f"vLLM hands boundaries {theirs} to the drafter, here it reads {list(pair.config.aux_boundaries or ())}"
        )
    total, ties = Agreement(), 0
    for prompt, made in zip(prompts, served["served"], strict=True):
        if made["id"] != prompt["id"] or len(made["text"]) < tokens + depth:
            raise DriftscopeError(
                f"{made['id']}: {len(made['text'])} tokens served, expected {tokens + depth} of {prompt['id']}: "
                "remove what was served before and start again"
            )
        start = len(prompt["token_ids"])
        text = texts.get(pair, prompt, made["text"])
        ties += int(text.near_tie[: start + tokens].sum())
        engine, chains = engine_rounds(made, start, tokens), chains_over(pair, text, depth, tokens)
        compare_prompt(total, made["id"], engine, chains)
    return {
        "engine": served["engine"],
        "method": served["speculative"]["method"],
        "speculative_tokens": depth,
        "texts_sha256": hashlib.sha256(json.dumps([made["text"] for made in served["served"]]).encode()).hexdigest(),
        **total.to_dict(),
        "explained": total.explained,
        "target_near_ties": ties,
        "counters_of_whole_texts": served["counters"],
    }


def control(
    checkpoint: Path,
    pair: Pair,
    served: Mapping[str, Any],
    prompts: Sequence[Mapping[str, Any]],
    texts: Texts,
    tokens: int,
) -> dict[str, Any] | None:
    """What is left equal with the other carry; None for a drafter that has no choice."""
    if pair.config.layer_form != "eagle3":
        return None
    carry = "pre" if pair.config.carry == "post" else "post"
    row = compare(load_pair(checkpoint, pair.target, overrides={"carry": carry}), served, prompts, texts, tokens)
    kept = ("rounds_engine", "rounds_driftscope", "rounds_equal", "drafted_equal", "accepted_driftscope", "explained")
    return {"carry": carry, **{name: row[name] for name in kept}}


def serve(given: argparse.Namespace, checkpoint: Path, pair: Pair, k: int, prompts: Path) -> Path:
    """Where the served rounds lie; they are made if they are not there."""
    out: Path = given.work / f"{checkpoint.name}-{k}.json"
    if pair.config.layer_form not in METHODS:
        raise DriftscopeError(f"{checkpoint}: no comparison of layer_form {pair.config.layer_form}")
    if not out.is_file():
        if given.vllm_python is None:
            sys.exit(f"error: {out} is not there: name an interpreter that has vLLM with --vllm-python")
        # The longest depth for all, so that the texts are the same.
        length = given.tokens + max(*given.k, ALSO)
        command = [given.vllm_python, HERE / "serve.py", checkpoint, "--target", pair.target.name, "--prompts", prompts]
        command += ["-k", k, "--tokens", length, "--method", METHODS[pair.config.layer_form], "-o", out]
        print(f"serving {checkpoint.name} with {k} speculative tokens")
        with out.with_suffix(".log").open("w") as log:
            code = subprocess.run([str(part) for part in command], stdout=log, stderr=log, check=False).returncode
        if code or not out.is_file():
            sys.exit(f"error: vLLM ended with code {code}: see {out.with_suffix('.log')}")
    return out


def show(row: Mapping[str, Any]) -> str:
    """One line."""
    positions = " ".join(map(str, row["accepted_engine"]))
    same = "equal" if row["accepted_engine"] == row["accepted_driftscope"] else f"here {row['accepted_driftscope']}"
    return (
        f"{row['drafter']}, K = {row['speculative_tokens']}: {row['rounds_equal']} of {row['rounds_engine']} rounds equal, "
        f"{row['drafted_equal']} of {row['drafted']} drafted tokens; accepted per position {positions}: {same}; "
        f"{len(row['differences'])} differences"
        + ("" if row["explained"] else ", NOT EXPLAINED")
        + (f"; with the other carry {row['control']['rounds_equal']} rounds equal" if row.get("control") else "")
    )


def opened(checkpoint: Path, target: Target) -> Pair:
    """The drafter with its target; a head that lies in its target's folder has that one."""
    within = open_checkpoint(checkpoint).config.layer_form == "mtp"
    return load_pair(checkpoint, load_target(checkpoint, device="cpu", dtype=torch.float32) if within else target)


def kept_rows(file: Path, prompts: int, tokens: int) -> list[dict[str, Any]]:
    """Those of a result over the same texts; [] without any."""
    held: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return list(held["rows"]) if (held.get("prompts"), held.get("tokens")) == (prompts, tokens) else []


def write(file: Path, result: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--vllm-python", help="interpreter of the environment that has vLLM")
    parser.add_argument("--also", nargs="+", type=Path, default=[], help=f"served with {ALSO} speculative tokens only")
    parser.add_argument("-k", type=int, nargs="+", default=[1, 3, 8], help="numbers of speculative tokens")
    parser.add_argument("--tokens", type=int, default=96, help="compared tokens of every prompt")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--prompt-file", type=Path)
    parser.add_argument("--work", type=Path, default=Path("build/benchmarks/vllm_parity"))
    parser.add_argument("--resume", action="store_true", help="keep the rows of --out that are of the same checkpoints")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/vllm_parity.json"))
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    try:
        target = load_target(given.target, device="cpu", dtype=torch.float32)
        prompts = chosen_prompts(target, given.prompts, given.prompt_file)
        (given.work / "prompts.json").write_text(json.dumps(prompts) + "\n", encoding="utf-8")
        found = kept_rows(given.out, len(prompts), given.tokens) if given.resume else []
        texts, rows = Texts(), []
        for checkpoint, k in [(c, k) for c in given.checkpoints for k in given.k] + [(c, ALSO) for c in given.also]:
            key = {"drafter": checkpoint.name, "speculative_tokens": k, "sha256": digest(checkpoint)}
            row = next((row for row in found if key.items() <= row.items()), None)
            if row is None:
                pair = opened(checkpoint, target)
                served = json.loads(serve(given, checkpoint, pair, k, given.work / "prompts.json").read_text("utf-8"))
                if served["sha256"] != key["sha256"]:
                    raise DriftscopeError(
                        f"served from another {checkpoint}: remove it from {given.work} and start again"
                    )
                row = {**key, **compare(pair, served, prompts, texts, given.tokens)}
                if checkpoint in given.checkpoints:
                    row["control"] = control(checkpoint, pair, served, prompts, texts, given.tokens)
            rows.append(row)
            print(show(row), flush=True)
            # After every row, and what is kept behind it: a run that is stopped goes on with --resume.
            rest = [kept for kept in found if kept not in rows]
            write(given.out, {"dtype": "float32", "prompts": len(prompts), "tokens": given.tokens, "rows": rows + rest})
        write(given.out, {"dtype": "float32", "prompts": len(prompts), "tokens": given.tokens, "rows": rows})
    except (DriftscopeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"written to {given.out}")
    sys.exit(0 if all(row["explained"] for row in rows) else 1)


if __name__ == "__main__":
    main()
