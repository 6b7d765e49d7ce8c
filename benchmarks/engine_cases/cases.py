"""Drafters as a config can get them wrong: copies of the trained ones with one switch changed, for an engine to serve.

    python benchmarks/engine_cases/cases.py --target TARGET [-o build/benchmarks/engine_cases]

Writes prompts, copies and `cases.json`, the list that serve_all.py goes through. What an engine makes of a copy is its own:
nothing of it is computed here.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from driftscope.checkpoints.reading.aux_ids import default_boundaries
from driftscope.target.model import load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts

CHECKPOINTS = Path(__file__).resolve().parents[2] / "examples" / "smollm2" / "checkpoints"
LAYERS = 30
IDS = "eagle_aux_hidden_state_layer_ids"
Config = dict[str, Any]
Tensors = dict[str, torch.Tensor]
Change = Callable[[Config, Tensors], None]


@dataclass(frozen=True)
class Case:
    """One server: a drafter, what its config has wrong, and the prompts that it is asked."""

    drafter: str
    change: str
    prompts: str
    """`run`: those of the run; `others`: as many of the same kinds; `code`: one kind."""
    switch: str = ""
    """Of the audit's hypotheses, the one that was changed; empty where nothing is wrong."""
    alternative: str = ""
    """Its value begins so."""

    @property
    def name(self) -> str:
        return f"{self.drafter}_{self.change}_{self.prompts}"


def _carry(config: Config, tensors: Tensors) -> None:
    config["norm_output"] = not config["norm_output"]
    config["eagle_config"]["return_hidden_post_norm"] = config["norm_output"]


def _no_fc_norm(config: Config, tensors: Tensors) -> None:
    config["fc_norm"] = False
    for name in [name for name in tensors if "fc_norm" in name]:
        del tensors[name]


def _shift(by: int) -> Change:
    def change(config: Config, tensors: Tensors) -> None:
        config[IDS] = [boundary + by for boundary in default_boundaries(LAYERS)]

    return change


def _rope(theta: float) -> Change:
    def change(config: Config, tensors: Tensors) -> None:
        config["rope_theta"] = theta

    return change


def _no_map(config: Config, tensors: Tensors) -> None:
    tensors["d2t"] = torch.zeros_like(tensors["d2t"])


CHANGES: dict[str, tuple[Change | None, str, str]] = {
    "right": (None, "", ""),
    "carry": (_carry, "carry", ""),
    "no-fc-norm": (_no_fc_norm, "norms before fc", "none"),
    "aux-plus-1": (_shift(1), "aux_boundaries", "3, 16, 28"),
    "aux-minus-1": (_shift(-1), "aux_boundaries", "1, 14, 26"),
    "rope-10000": (_rope(1e4), "rope.theta", "10000"),
    "rope-1e6": (_rope(1e6), "rope.theta", "1e+06"),
    "no-map": (_no_map, "vocab_map", "placeholder"),
    "target-4-bit": (None, "target", ""),
}
SERVED = {
    "run": {
        "eagle3.1": (
            "right", "carry", "no-fc-norm", "aux-plus-1", "aux-minus-1", "rope-10000", "rope-1e6", "no-map", "target-4-bit",
        ),
        "eagle3": ("right", "carry", "aux-plus-1", "rope-10000", "no-map"),
        "fc-norm": ("right", "carry", "no-fc-norm", "aux-plus-1", "no-map"),
        "post-norm": ("right", "carry", "aux-minus-1", "no-map"),
        "eagle3-cold": ("right", "carry", "no-map"),
    },
    "others": {
        "eagle3.1": ("right", "carry", "no-fc-norm", "aux-plus-1"),
        "eagle3": ("right", "carry", "aux-plus-1"),
    },
    "code": {"eagle3.1": ("right",), "eagle3": ("right",)},
}  # fmt: skip


def cases() -> list[Case]:
    """All of them."""
    return [
        Case(drafter, change, prompts, *CHANGES[change][1:])
        for prompts, drafters in SERVED.items()
        for drafter, changes in drafters.items()
        for change in changes
    ]


def copy(case: Case, folder: Path) -> Path:
    """The checkpoint with its change."""
    source = CHECKPOINTS / case.drafter
    change = CHANGES[case.change][0]
    if change is None:
        return source
    out = folder / f"{case.drafter}_{case.change}"
    config = json.loads((source / "config.json").read_text("utf-8"))
    tensors = load_file(source / "model.safetensors")
    change(config, tensors)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def rounded_target(source: Path, out: Path, bits: int = 4, group: int = 32) -> Path:
    """The target with the weights of its layers rounded to so many bits in groups along the input."""
    if not out.is_dir():
        shutil.copytree(source, out)
        tensors = load_file(out / "model.safetensors")
        top = 2 ** (bits - 1) - 1
        for name, tensor in tensors.items():
            if name.endswith("_proj.weight"):
                parts = tensor.float().unflatten(1, (-1, group))
                scale = parts.abs().amax(-1, keepdim=True).clamp(min=1e-8) / top
                tensors[name] = ((parts / scale).round() * scale).flatten(1).to(tensor.dtype)
        save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def prompt_sets() -> dict[str, list[str]]:
    """Ids of the shipped prompts: the first four of each kind, the last four, those of one kind."""
    ids = [prompt.id for prompt in load_prompts(None)]
    number = {name: int(name.rsplit("-", 1)[1]) for name in ids}
    return {
        "run": [name for name in ids if number[name] <= 4],
        "others": [name for name in ids if number[name] > 4],
        "code": [name for name in ids if name.startswith("code") and number[name] > 4],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/engine_cases"))
    given = parser.parse_args()
    target = load_target(str(given.target), device="cpu", dtype=torch.float32)
    shipped = {prompt.id: prompt for prompt in load_prompts(None)}
    given.out.mkdir(parents=True, exist_ok=True)
    for name, ids in prompt_sets().items():
        chosen = [shipped[one] for one in ids]
        kept, _ = tokenize_prompts(chosen, target.tokenizer, max_tokens=1024, min_tokens=2)
        listed = [{"id": prompt.id, "token_ids": list(prompt.token_ids)} for prompt in kept]
        (given.out / f"{name}.json").write_text(json.dumps(listed) + "\n", encoding="utf-8")
        lines = [
            json.dumps({"id": p.id, "category": p.category, "messages": [asdict(m) for m in p.messages or ()]})
            for p in chosen
        ]
        (given.out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed = []
    for case in cases():
        served = given.target
        if case.change == "target-4-bit":
            served = rounded_target(given.target, given.out / "target-4-bit")
        paths = {"checkpoint": str(copy(case, given.out / "drafters")), "target": str(served)}
        listed.append({**asdict(case), "name": case.name, **paths})
    (given.out / "cases.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    print(f"{len(listed)} cases in {given.out}")


if __name__ == "__main__":
    main()
