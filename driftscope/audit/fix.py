"""From a setting to the files: the config lines that change, the flag, what engines make of it, and a corrected copy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from driftscope.audit.canonical import canonical
from driftscope.audit.hypotheses import Hypothesis
from driftscope.audit.setting import Setting
from driftscope.audit.spelled import spelled, switch_value
from driftscope.checkpoints import open_checkpoint
from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.checkpoints.engines import engine_readings
from driftscope.checkpoints.families.experts import split
from driftscope.checkpoints.families.registry import families, stated_by, stored_value
from driftscope.checkpoints.reading import aux_ids
from driftscope.checkpoints.reading.files import open_source
from driftscope.errors import CheckpointError, DriftscopeError

_ROPE_KEYS = ("rope_theta", "rope_scaling", "rope_parameters")
_OTHERWISE = {
    "rope": "rope_theta and rope_scaling of the drafter's own config, 10000 and none where they are absent",
    "vocab_map": "target id = draft id + d2t, whatever t2d says",
    "position_increment": "positions advance by 1 a step; no config changes that",
    "hidden_act": "hidden_act as it stands",
    "rms_norm_eps": "rms_norm_eps as it stands",
    "head_dim": "head_dim, else hidden_size / num_attention_heads",
}
_NOT_READ = "no key for it; the engine's own code decides"


@dataclass(frozen=True)
class Advice:
    """How one change is made."""

    flag: str | None
    """For driftscope's commands; None where no switch says it."""
    config: Mapping[str, Any]
    """Dotted keys of config.json with the value that they should have."""
    tensors: tuple[str, ...]
    """Stored tensors that change."""
    inexpressible: str | None
    """Why the layout cannot hold it."""
    engines: Mapping[str, str]
    """vLLM, SGLang, TensorRT-LLM: how each reads the file as it stands, and as corrected."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Fixed:
    """A corrected copy that was written."""

    folder: Path
    config: dict[str, tuple[Any, Any]]
    """Dotted key -> (before, after); a missing key is None."""
    tensors: tuple[str, ...]
    left: tuple[str, ...]
    """What the copy could not express."""

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def advise(hypothesis: Hypothesis, before: Setting, after: Setting, checkpoint: Checkpoint, num_layers: int) -> Advice:
    """What to do about a setting that should be another one."""
    raw, tensors, left = _edited(before, after, checkpoint)
    changed = {key: new for key, (_, new) in _difference(checkpoint.raw_config, raw).items()}
    reason = "; ".join(left) or None
    if not changed and not tensors and reason is None:
        reason = f"the {checkpoint.layout} layout has no key for {hypothesis.switch}"
    engines = _engines(hypothesis, after, checkpoint, raw, num_layers)
    return Advice(flag(hypothesis), changed, tensors, reason, engines)


def flag(hypothesis: Hypothesis) -> str | None:
    """The options of the command line that run a hypothesis, or None."""
    if hypothesis.weights or hypothesis.lens or not hypothesis.changes:
        return None
    words = []
    for switch, value in hypothesis.changes.items():
        if switch == "aux_boundaries":
            if list(value) != sorted(value):
                return None
            words.append("--aux " + ",".join(map(str, value)))
        elif switch == "carry":
            words.append(f"--carry {value}")
        elif switch == "rope.theta":
            words.append(f"--rope-theta {value:g}")
        elif isinstance(value, Mapping):
            words.append(f"--set '{switch}={json.dumps(value)}'")
        else:
            text = json.dumps(value) if isinstance(value, bool) else "none" if value is None else spelled(value)
            words.append(f"--set {switch}={text}")
    return " ".join(words)


def write_fixed(path: str | Path, final: Setting, folder: str | Path, target: Any) -> Fixed:
    """Write a copy of the checkpoint at `path` that runs as `final` does, as far as its layout can say it.

    target: the target's transformers config. Raises CheckpointError for a folder that is not empty, or when nothing could
    be expressed.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"--fix {folder}: it exists and is not empty; give a new folder")
    # As the file says it, without switches that a user set.
    checkpoint = open_checkpoint(path, target_config=target)
    declared = Setting(checkpoint.config, checkpoint.weights)
    raw, tensors, left = _edited(declared, final, checkpoint)
    changes = _difference(checkpoint.raw_config, raw)
    if not changes and not tensors:
        why = (
            f"the {checkpoint.layout} layout can say none of it ({'; '.join(left)})"
            if left
            else "the file says so already"
        )
        raise CheckpointError(f"--fix {folder}: nothing to write, {why}")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = canonical(final)
    if _write_weights(checkpoint, wanted.weights if tensors else None, folder):
        # Quantised weights are written as what they stand for.
        for key in ("quantization_config", "compression_config"):
            raw.pop(key, None)
    partial = folder / f".config.json.{os.getpid()}"
    partial.write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, folder / "config.json")
    return Fixed(folder, changes, tensors, (*left, *_unread(folder, wanted.config.switches(), target)))


def _unread(folder: Path, wanted: Mapping[str, Any], target: Any) -> list[str]:
    """Switches that the written copy does not read back as wanted."""
    try:
        got = open_checkpoint(folder, target_config=target).config.switches()
    except DriftscopeError as error:
        return [f"the copy does not open ({error})"]
    skipped = ("aux_ids", "vocab_map")
    return [
        f"{name} = {spelled(value)} (it reads back as {spelled(got[name])})"
        for name, value in wanted.items()
        if name not in skipped and got[name] != value
    ]


def _edited(
    before: Setting, after: Setting, checkpoint: Checkpoint
) -> tuple[dict[str, Any], tuple[str, ...], list[str]]:
    """(config.json as it should be, stored tensors that change, what cannot be expressed)."""
    old, new = canonical(before), canonical(after)
    left = [f"{word}: no layout says so" for word in new.left if word not in old.left]
    family = next(family for family in families() if checkpoint.layout == family.NAME)
    raw = json.loads(json.dumps(checkpoint.raw_config))
    try:
        was, should = family.config_json(old.config), family.config_json(new.config)
    except CheckpointError as error:
        left.append(str(error))
        was = should = {}
    changes = _difference(was, should)
    if changes:
        _clear(raw, before, after, stated_by(family).aux_ids)
        for key, (_, value) in changes.items():
            _put(raw, key, value)
    if not changes and not new.left:
        silent = [name for name in _moved(old.config.switches(), new.config.switches()) if not _in_tensors(name)]
        left += [f"{name}: the {checkpoint.layout} layout has no key for it" for name in silent]
    tensors = tuple(
        family.stored_name(name)
        for name in {**old.weights, **new.weights}
        if not _same(old.weights.get(name), new.weights.get(name))
    )
    return raw, tensors, left


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name in new if old[name] != new[name]]


def _in_tensors(switch: str) -> bool:
    return switch in ("embedding", "vocab_map", "head")


def _same(left: Tensor | None, right: Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.shape == right.shape and torch.equal(left.float().cpu(), right.to(left.dtype).float().cpu())


def _clear(raw: dict[str, Any], before: Setting, after: Setting, own: Sequence[tuple[str, str]] = ()) -> None:
    """Drop other spellings of what changes, which would win over the one that is written."""
    if before.config.aux_boundaries != after.config.aux_boundaries:
        for key, _ in (*own, *aux_ids._KEYS):
            _drop(raw, key)
    if before.config.rope != after.config.rope:
        places = [
            raw,
            *(raw[name] for name in ("transformer_layer_config", "model") if isinstance(raw.get(name), dict)),
        ]
        for place in places:
            for key in _ROPE_KEYS[1:]:
                place.pop(key, None)


def _drop(raw: dict[str, Any], dotted: str) -> None:
    *path, last = dotted.split(".")
    place: Any = raw
    for part in path:
        place = place.get(part) if isinstance(place, dict) else None
    if isinstance(place, dict):
        place.pop(last, None)


def _put(raw: dict[str, Any], dotted: str, value: Any) -> None:
    *path, last = dotted.split(".")
    for part in path:
        inner = raw.get(part)
        if not isinstance(inner, dict):
            inner = raw[part] = {}
        raw = inner
    if value is None:
        raw.pop(last, None)
    else:
        raw[last] = value


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, Any]]:
    """Dotted key -> (old, new) where they differ; absent is None."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in {**old, **new}:
        left, right = old.get(key), new.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found |= _difference(left, right, f"{prefix}{key}.")
        elif left != right:
            found[prefix + key] = (left, right)
    return found


def _write_weights(checkpoint: Checkpoint, weights: Mapping[str, Tensor] | None, folder: Path) -> bool:
    """Copy the weight files, or write one file with these canonical tensors in place of the stored ones; then True."""
    source = open_source(checkpoint.path)
    if weights is None and source.inside:
        weights = checkpoint.weights
    if weights is None:
        for file in source.files:
            shutil.copyfile(file, folder / file.name)
        for name in source.folder_files:
            if name.endswith(".index.json"):
                shutil.copyfile(Path(checkpoint.path) / name, folder / name)
        return False
    family = next(family for family in families() if checkpoint.layout == family.NAME)
    weights = split(weights)
    # A head inside its target is written alone, under the names that it has alone.
    known = {} if source.inside else checkpoint.names
    stored = {known.get(name, family.stored_name(name)): name for name in weights}
    tensors = {name: source.load(name) for name in checkpoint.unused}
    for name, canonical_name in stored.items():
        tensor = stored_value(family, canonical_name, weights[canonical_name].detach().cpu())
        before = checkpoint.weights.get(canonical_name)
        floats = [t.dtype for t in checkpoint.weights.values() if t.is_floating_point()]
        dtype = before.dtype if before is not None else floats[0] if tensor.is_floating_point() else tensor.dtype
        tensors[name] = tensor.to(dtype).contiguous().clone()
    partial = folder / f".model.safetensors.{os.getpid()}"
    save_file(tensors, partial, metadata={"format": "pt"})
    os.replace(partial, folder / "model.safetensors")
    return True


def _engines(
    hypothesis: Hypothesis, after: Setting, checkpoint: Checkpoint, raw: Mapping[str, Any], num_layers: int
) -> dict[str, str]:
    config, stored = canonical(after).config, checkpoint.weights
    switches = set(hypothesis.changes) or {hypothesis.switch}
    engines = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM"}
    now = {row.switch: row for row in engine_readings(config, checkpoint.raw_config, stored, num_layers)}
    then = {row.switch: row for row in engine_readings(config, raw, stored, num_layers)}
    covered = [name for name in sorted(switches) if name in _COVERED]
    result = {}
    for engine, title in engines.items():
        parts = []
        for switch in covered:
            value = switch_value(config, switch)
            wanted = ("yes" if value else "no") if isinstance(value, bool) else spelled(value)
            reads = [getattr(rows[switch], engine) if switch in rows else None for rows in (now, then)]
            today, fixed = (wanted if read is None else read for read in reads)
            parts.append(f"{switch} is {today} as the file stands, {fixed} as corrected")
        if not covered:
            words = next((text for key, text in _OTHERWISE.items() if hypothesis.switch.startswith(key)), _NOT_READ)
            parts.append(words)
        result[title] = "; ".join(parts)
    return result


_COVERED = (
    "aux_boundaries", "residual", "carry", "input_norm", "fc_norm", "later_layer_norm", "fc_bias", "attention_bias",
    "embedding", "head",
)  # fmt: skip
