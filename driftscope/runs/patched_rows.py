"""From the patched chains of a prompt to rows of the run's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from driftscope.chain.chain import Feed
from driftscope.chain.patched_chains import PatchedChains
from driftscope.chain.prompt_chains import Subject
from driftscope.chain.rejections import rejections
from driftscope.runs.rows import joint, on_host

ROWS_AT_ONCE = 256


def patched_rows(subject: Subject, chains: PatchedChains, feed: Feed) -> pd.DataFrame:
    """`anchors` rows: what every patch drafted, patch by patch, anchor by anchor, step by step."""
    drafted, text = (part.numpy() for part in on_host([chains.drafted, chains.text]))
    match = drafted == text
    accepted = np.stack([joint(part) for part in match])
    patches, anchors, steps = drafted.shape
    told = subject.capture.greedy

    def each(values: NDArray[Any]) -> NDArray[Any]:
        """One value an anchor, for every patch and step."""
        return np.tile(np.repeat(values, steps), patches)

    return pd.DataFrame(
        {
            "variant": np.repeat([f"cost/{name}" for name in chains.patches], anchors * steps),
            "feed": feed,
            "prompt": subject.capture.prompt_id,
            "anchor": each(subject.anchors.cpu().numpy()),
            "step": np.tile(np.arange(1, steps + 1), patches * anchors),
            "loop": each(subject.looping),
            "near_tie": each(subject.near_tie),
            "drafted": drafted.ravel(),
            "text": np.tile(text.ravel(), patches),
            "match": match.ravel() if told else None,
            "accepted": accepted.ravel() if told else None,
        }
    )


def rejection_rows(subject: Subject, chains: PatchedChains) -> pd.DataFrame:
    """The `rejections` table: a row per anchor."""
    rank, prob, tie = (part.numpy() for part in on_host([chains.rank, chains.prob, chains.tie]))
    right = dict(zip(chains.patches, (chains.drafted == chains.text).cpu().numpy(), strict=True))
    anchors = subject.anchors.cpu().numpy()
    # The token of step k is the one behind position t + k.
    behind = anchors[:, None] + np.arange(1, rank.shape[1] + 1)
    found = rejections(right, rank > 0, subject.capture.near_tie.numpy()[behind])
    rejected, at = found.step > 0, (np.arange(len(anchors)), np.maximum(found.step - 1, 0))
    target = np.full(len(anchors), np.nan)
    target[rejected] = text_probs(subject, behind[at][rejected])
    known = rejected & (rank[at] > 0)

    def told(values: NDArray[Any], where: NDArray[np.bool_], dtype: str) -> Any:
        column = pd.array(values, dtype)
        column[~where] = pd.NA
        return column

    return pd.DataFrame(
        {
            "prompt": subject.capture.prompt_id,
            "anchor": anchors,
            "loop": subject.looping,
            "step": told(found.step, rejected, "Int16"),
            "reason": found.reason,
            **{f"mends_{factor}": told(mends, rejected, "boolean") for factor, mends in found.mended.items()},
            "rank": told(rank[at], known, "Int32"),
            "prob": np.where(known, prob[at], np.nan),
            "target_prob": target,
            "gained": found.gained,
            "tie": tie.any(1),
        }
    )


@torch.no_grad()
def text_probs(subject: Subject, positions: Int[NDArray[Any], " row"]) -> Float[NDArray[Any], " row"]:
    """The target's probability of the text's token behind each position, from its final hidden state there."""
    unique, place = np.unique(positions, return_inverse=True)
    at = torch.from_numpy(unique)
    final, tokens = subject.capture.final[at].to(subject.pair.drafter.device), subject.capture.token_ids[at + 1]
    parts: list[Tensor] = []
    for states, ids in zip(final.split(ROWS_AT_ONCE), tokens.split(ROWS_AT_ONCE), strict=True):
        scores = subject.pair.target.head(states).float().cpu()
        parts.append((scores.gather(-1, ids[:, None])[:, 0] - scores.logsumexp(-1)).exp())
    return torch.cat(parts).double().numpy()[place] if parts else np.zeros(0)
