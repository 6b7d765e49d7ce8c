"""From the tensors of one prompt's chains to the rows of the run's tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.chain.chain import Feed
from driftscope.chain.measure import BUCKETS, SELF_GENERATED
from driftscope.chain.prompt_chains import Subject
from driftscope.runs.schema import HEADS
from driftscope.stats.acceptance import served_walk

Steps = Sequence[dict[str, Tensor]]


def to_numpy(steps: Steps, names: Collection[str] | None = None) -> list[dict[str, np.ndarray]]:
    """Quantities of every step (without `names`, all of them), moved off the device in one copy for each dtype."""
    kept = [{name: value for name, value in step.items() if names is None or name in names} for step in steps]
    moved = iter(on_host([value for step in kept for value in step.values()]))
    return [{name: next(moved).numpy() for name in step} for step in kept]


def on_host(values: Sequence[Tensor]) -> list[Tensor]:
    """The tensors on the CPU, bfloat16 as float32, which numpy knows. From a device those of one dtype come together: every
    copy waits for it."""
    plain = [value.detach().float() if value.dtype == torch.bfloat16 else value.detach() for value in values]
    if _on_cpu(plain):
        return plain
    moved = list(plain)
    for dtype in {value.dtype for value in plain}:
        places = [place for place, value in enumerate(plain) if value.dtype == dtype]
        flat = torch.cat([plain[place].flatten() for place in places]).cpu()
        parts = flat.split([plain[place].numel() for place in places])
        for place, part in zip(places, parts, strict=True):
            moved[place] = part.view(plain[place].shape)
    return moved


def _on_cpu(values: Sequence[Tensor]) -> bool:
    return all(value.device.type == "cpu" for value in values)


def with_self_generated(values: np.ndarray, step: int, masked: bool = False) -> dict[str, np.ndarray]:
    """[..., bucket] split by bucket name, with `self_generated`: drafted + current, but of the current row of step 1 only
    where it is a mask (`masked`): elsewhere it is what the round starts from."""
    parts = {name: values[..., i] for i, name in enumerate(BUCKETS)}
    parts[SELF_GENERATED] = parts["drafted"] + parts["current"] * (step > 1 or masked)
    return parts


def masked_start(subject: Subject) -> bool:
    """Whether step 1 is drafted from a mask already, as in a block."""
    config = subject.pair.config
    return config.in_blocks and not config.sample_from_anchor


def joint(matches: np.ndarray) -> np.ndarray:
    """Bool[anchor, step]: this step and all earlier ones equal the text."""
    return np.logical_and.accumulate(matches, 1)


def match_matrix(steps: Sequence[dict[str, np.ndarray]]) -> np.ndarray:
    """Bool[anchor, step]: the drafted token equals the text's."""
    return np.stack([step["drafted"] == step["text"] for step in steps], 1)


def _told(subject: Subject, value: Any) -> Any:
    """`value`, or nothing where the text is not known to be the target's own."""
    return value if subject.capture.greedy else None


def anchor_rows(subject: Subject, variant: str, feed: Feed, steps: Steps) -> pd.DataFrame:
    """The `anchors` table. Of the quantities that are not there a column is absent, so that chains of which little was read are
    stored by the same function; `drafted` and `text` must be.

    Args:
        subject: the prompt.
        variant: name of the variant that the chains are of.
        feed: what the later steps embed.
        steps: per step, quantity -> [anchor, ...], as `observe` gives them.

    Returns:
        One row per anchor and step.
    """
    plain = to_numpy(steps)
    match = match_matrix(plain)
    accepted = joint(match)
    learned, masked = subject.pair.drafter.learned_sinks, masked_start(subject)
    frames = []
    for index, step in enumerate(plain):
        k = index + 1
        columns: dict[str, Any] = {
            "variant": variant,
            "feed": feed,
            "prompt": subject.capture.prompt_id,
            "anchor": subject.anchors.cpu().numpy(),
            "step": k,
            "loop": subject.looping,
            "near_tie": subject.near_tie,
            "drafted": step["drafted"],
            "text": step["text"],
            "match": _told(subject, match[:, index]),
            "accepted": _told(subject, accepted[:, index]),
        }
        if "rank" in step:
            columns["rank"] = pd.array(np.where(step["rank"] > 0, step["rank"], 0), "Int32")
            columns["rank"][step["rank"] <= 0] = pd.NA
        if "head_entropy" in step:
            columns["entropy"] = step["head_entropy"].mean((1, 2))
        for name, values in step.items():
            if name not in columns and values.ndim == 1:
                columns[name] = values
        parts: dict[str, Any] = {kind: step[kind].mean((1, 2)) for kind in ("mass", "excess") if kind in step}
        parts |= {"keys": step["keys"]} if "keys" in step else {}
        for kind, values in parts.items():
            by_bucket = with_self_generated(values, k, masked)
            columns |= {f"{kind}/{name}": by_bucket[name] for name in by_bucket if learned or name != "virtual"}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def head_rows(subject: Subject, variant: str, feed: Feed, steps: Steps) -> pd.DataFrame:
    """The `heads` table: sums over the anchors outside loops, of those of mass, excess and entropy that are there.

    Args:
        subject: the prompt.
        variant: name of the variant that the chains are of.
        feed: what the later steps embed.
        steps: per step, quantity -> [anchor, ...], as `observe` gives them.

    Returns:
        One row per step, layer and head; none without any of the quantities.
    """
    kept = ~subject.looping
    learned, masked = subject.pair.drafter.learned_sinks, masked_start(subject)
    frames = []
    for k, step in enumerate(to_numpy(steps, ("head_entropy", "mass", "excess")), start=1):
        if not step:
            continue
        layers, heads = next(iter(step.values())).shape[1:3]
        columns: dict[str, Any] = {
            "variant": variant,
            "feed": feed,
            "prompt": subject.capture.prompt_id,
            "step": k,
            "layer": np.repeat(np.arange(layers), heads),
            "head": np.tile(np.arange(heads), layers),
            "anchors": int(kept.sum()),
        }
        if "head_entropy" in step:
            columns["entropy"] = step["head_entropy"][kept].sum(0, dtype=np.float64).ravel()
        for kind in ("mass", "excess"):
            if kind not in step:
                continue
            sums = with_self_generated(step[kind][kept].sum(0, dtype=np.float64), k, masked)
            columns |= {f"{kind}/{name}": sums[name].ravel() for name in sums if learned or name != "virtual"}
        frames.append(pd.DataFrame(columns))
    if not frames:
        return HEADS.frame(HEADS.empty())
    return pd.concat(frames, ignore_index=True)


def step_rows(subject: Subject, variant: str, feed: Feed, steps: Steps, quantities: Sequence[str] = ()) -> pd.DataFrame:
    """The `steps` table: counts and sums over the anchors outside loops; the served walk over all of them.

    Args:
        subject: the prompt.
        variant: name of the variant that the chains are of.
        feed: what the later steps embed.
        steps: per step, quantity -> [anchor, ...], as `observe` gives them.
        quantities: names whose sums are stored as well.

    Returns:
        One row per step.
    """
    plain = to_numpy(steps, ("drafted", "text", *quantities))
    kept = ~subject.looping
    match = match_matrix(plain)
    accepted = joint(match)
    reached = np.concatenate([np.ones((len(match), 1), bool), accepted[:, :-1]], 1)
    counts = accepted.sum(1)
    rows = []
    for index, step in enumerate(plain):
        row: dict[str, Any] = {
            "variant": variant,
            "feed": feed,
            "prompt": subject.capture.prompt_id,
            "step": index + 1,
            "anchors": int(kept.sum()),
            "matches": _told(subject, int(match[kept, index].sum())),
            "reached": _told(subject, int(reached[kept, index].sum())),
            "accepted": _told(subject, int(accepted[kept, index].sum())),
        }
        if feed == "drafted" and subject.capture.greedy and subject.consecutive:
            walk = served_walk(counts, index + 1)
            row |= {
                "served_rounds": walk.rounds,
                "served_accepted": walk.total,
                "served_accepted_sq": walk.total_sq,
            }
        for name in quantities:
            values = step[name]
            row[f"sum/{name}"] = float(values.reshape(len(values), -1).mean(1)[kept].sum(dtype=np.float64))
        rows.append(row)
    return pd.DataFrame(rows)


def regions(capture: Capture, sinks: Sequence[int]) -> dict[str, np.ndarray]:
    """Bool[position] per region: sink positions, the rest of the prompt, the continuation."""
    positions = np.arange(capture.length)
    sink = np.isin(positions, list(sinks))
    prompt = (positions < capture.prompt_length) & ~sink
    return {"sink": sink, "prompt": prompt, "continuation": ~sink & ~prompt}


def layer_rows(capture: Capture, sinks: Sequence[int]) -> pd.DataFrame:
    """The `layers` table: RMS of every target boundary that was recorded, by region."""
    sizes = capture.rms.double().numpy()
    known = [b for b in range(len(sizes)) if np.isfinite(sizes[b]).all()]
    rows = []
    for region, mask in regions(capture, sinks).items():
        if mask.any():
            logs = np.log(np.maximum(sizes[:, mask], np.finfo(np.float64).tiny)).sum(1)
            rows += [
                {
                    "prompt": capture.prompt_id,
                    "boundary": b,
                    "region": region,
                    "positions": int(mask.sum()),
                    "sum_rms": sizes[b, mask].sum(),
                    "sum_log_rms": logs[b],
                }
                for b in known
            ]
    return pd.DataFrame(rows)


@torch.no_grad()
def aux_rows(subject: Subject) -> pd.DataFrame | None:
    """The `aux` table: RMS of each aux feature before and after its norm, and its share of the fused input.

    The share of block i is |W_i a_i| / sum_j |W_j a_j| in L2, W_i being the columns of fc that read it. None for a drafter
    without aux features.
    """
    config, drafter = subject.pair.config, subject.pair.drafter
    if config.feature_source != "aux" or config.aux_boundaries is None:
        return None
    raw = subject.text.features.chunk(config.num_aux, -1)
    normed = list(raw)
    if config.input_norm:
        normed = list(drafter.input_norm(torch.cat(normed, -1)).chunk(config.num_aux, -1))
    if config.fc_norm:
        normed = [norm(part) for norm, part in zip(drafter.fc_norm, normed, strict=True)]
    blocks = drafter.fc.weight.chunk(config.num_aux, 1)
    sizes = torch.stack([(a @ w.T).float().norm(dim=-1) for a, w in zip(normed, blocks, strict=True)])
    share = (sizes / sizes.sum(0)).double().cpu().numpy()
    rows = []
    for region, mask in regions(subject.capture, subject.settings.sinks).items():
        for i, boundary in enumerate(config.aux_boundaries):
            if not mask.any():
                continue
            row = {
                "prompt": subject.capture.prompt_id,
                "index": i,
                "boundary": boundary,
                "region": region,
                "positions": int(mask.sum()),
                "sum_rms": _sum_rms(raw[i], mask),
                "sum_share": share[i, mask].sum(),
            }
            if config.input_norm or config.fc_norm:
                row["sum_rms_normed"] = _sum_rms(normed[i], mask)
            rows.append(row)
    return pd.DataFrame(rows)


def _sum_rms(features: Tensor, mask: np.ndarray) -> float:
    return float(features.float().square().mean(-1).sqrt().double().cpu().numpy()[mask].sum())
