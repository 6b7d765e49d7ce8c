"""Sound files to start from: what each reader accepts."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save, save_file

from driftscope.api import capture
from driftscope.audit.short import ShortAudit
from driftscope.captures.cache import CacheKey, CaptureCache
from driftscope.findings import Evidence, Finding, assess
from driftscope.findings.evaluate import save as save_findings
from driftscope.target.ends import TargetEnds, load_target_ends
from driftscope.target.model import load_target
from tests import rich_run
from tests.checkpoints.layouts import stored
from tests.dumps import writers
from tests.fake_run import Fake, write_fake_run
from tests.tiny_pair import save_pair

PLANTED = "planted.tensor"
"""The one tensor of a file outside the checkpoint: whoever reads it has left the folder."""
KEY = CacheKey.of("fuzz", "float32", [1], [3, 4, 5], 8)
AUX, LAYERS = (1, 2, 3), 4
_FAKE = Fake(prompts=2, anchors=6, depth=3)
_FAULT = Finding(
    "DS201", "Carry", "run otherwise than trained", (Evidence("agreement", 0.4, 0.3, 0.5, "share", "12 prompts", 0.1),), ("set it",)
).to_dict()  # fmt: skip
_TRIED = {"switch": "carry", "declared": "pre", "alternative": "post", "status": "worse", "code": "DS201"}
_AUDIT = ShortAudit((), None, True, "", (), 12, 96).to_dict() | {"hypotheses": [_TRIED]}
DUMPS: dict[str, tuple[Any, tuple[int, ...], dict[str, Any]]] = {
    "vllm": (writers.vllm, (*AUX, LAYERS), {"layers": [*AUX, LAYERS], "prompt_tokens": 9}),
    "speculators": (writers.speculators, (*AUX, LAYERS), {"layers": AUX}),
    "speculators before": (writers.speculators_before, (*AUX, LAYERS), {"layers": [0, 1, 2, 3]}),
    "specforge": (writers.specforge, AUX, {"layers": [0, 1, 2]}),
    "specforge packed": (
        lambda *given: writers.specforge(*given, packed=True, padding=5),
        AUX,
        {"layers": [0, 1, 2]},
    ),
    "torchspec": (writers.torchspec, AUX, {"layers": [0, 1, 2]}),
    "torchspec step": (writers.torchspec_step, AUX, {"layers": [0, 1, 2]}),
}
"""Writer -> how it writes, the boundaries that it is given, and the options under which they are read."""


@dataclass(frozen=True)
class Stock:
    """Sound files, in folders that are never changed."""

    home: Path
    checkpoint: Mapping[str, bytes]
    """File name -> content: one safetensors, one torch.save archive, and their config."""
    quantised: Mapping[str, bytes]
    """The same drafter, its matrices in FP8 blocks and in packed integers."""
    ends: TargetEnds
    """Of the target of `folder` and `dumps`."""

    @property
    def capture(self) -> Path:
        """A capture cache that holds `KEY`."""
        return self.home / "capture"

    @property
    def folder(self) -> Path:
        """A folder of captures, as `driftscope capture` makes it."""
        return self.home / "captures"

    @property
    def run(self) -> Path:
        """A small run."""
        return self.home / "run"

    @property
    def rich(self) -> Path:
        """A run with every probe, findings and an audit."""
        return self.home / "rich"

    def dump(self, name: str) -> Path:
        """What the writer of this name in `DUMPS` wrote."""
        return self.home / "dumps" / name.replace(" ", "-")

    @classmethod
    def build(cls, home: Path) -> Stock:
        """Write all of it into `home`."""
        home.mkdir(parents=True)
        torch.manual_seed(0)
        tensors, config = stored()
        buffer = io.BytesIO()
        torch.save({"state_dict": tensors, "config": config}, buffer)
        save_file({PLANTED: torch.ones(2, 2)}, home / "secret.safetensors")
        text = json.dumps(config).encode()
        files = {"model.safetensors": save(tensors), "model.pt": buffer.getvalue(), "config.json": text}
        quantised = {"model.safetensors": save(_quantised(tensors)), "config.json": text}
        found = cls(home, files, quantised, _captures(home))
        _cache(found.capture)
        write_fake_run(found.run, _FAKE).update(audit=_AUDIT, findings=[_FAULT])
        run = rich_run.write_rich_run(found.rich, _FAKE, read_along=True)
        rich_run.add_probes(run, _FAKE)
        save_findings(run, assess(run))
        run.update(audit=_AUDIT, findings=[*run.info.findings, _FAULT])
        return found


def _quantised(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = dict(tensors)
    for number, name in enumerate(name for name in tensors if "_proj.weight" in name):
        stem, weight = name.removesuffix(".weight"), found.pop(name)
        if number % 2:
            found |= {name: weight.to(torch.float8_e4m3fn), f"{stem}.weight_scale_inv": torch.ones(1, 1)}
            continue
        words = torch.randint(-(2**31), 2**31, (len(weight), -(-weight.shape[1] // 8)), dtype=torch.int32)
        found |= {f"{stem}.weight_packed": words, f"{stem}.weight_shape": torch.tensor(weight.shape)}
        found[f"{stem}.weight_scale"] = torch.full((len(weight), 1), 0.1)
    return found


def _cache(root: Path) -> None:
    made = {"token_ids": torch.arange(12), "final": torch.randn(12, 8), "rms": torch.rand(4, 12)}
    made["near_tie"] = torch.zeros(12, dtype=torch.bool)
    states = {1: torch.randn(12, 8), 2: torch.randn(12, 8)}
    CaptureCache(root).write(KEY, made, states, target={"name": "tiny", "dtype": "float32"}, meta={"length": 12})


def _captures(home: Path) -> TargetEnds:
    """A folder of captures and a dump of each writer; the ends of their target."""
    pair = save_pair(home / "pair", prompts=2)
    every = tuple(range(LAYERS + 1))
    target = load_target(pair.target)
    made = capture(target, out=home / "captures", prompts=pair.prompts, layers=every, max_new_tokens=24)
    records = made.captures()
    (home / "dumps").mkdir()
    for name, (write, boundaries, _) in DUMPS.items():
        write(home / "dumps" / name.replace(" ", "-"), records, boundaries)
    ends = load_target_ends(pair.target)
    ends.tokenizer.chat_template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    return ends
