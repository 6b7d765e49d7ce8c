"""What the files alone give away: contradictions that need no run, and also show in a drafter that knows nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from driftscope.audit.setting import Setting
from driftscope.audit.vocabulary import head_rows
from driftscope.checkpoints.checkpoint import Checkpoint
from driftscope.checkpoints.reading.vocab import read_vocab_map
from driftscope.drafter.build import target_token_ids

_UNLIKE = 0.1
"""Mean cosine of an embedding to the target's below which they have nothing in common."""
_SAMPLE = 1024


@dataclass(frozen=True)
class StaticHint:
    """One contradiction. Whether it matters is for the measurement to say, where there is one."""

    code: str
    statement: str
    advice: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def static_hints(checkpoint: Checkpoint, setting: Setting, embedding: Tensor, head: Tensor) -> list[StaticHint]:
    """Hints from tensors and switches. embedding and head are the target's, [vocab, hidden]."""
    return [*_map(setting, head), *_never_applied(checkpoint), *_embedding(setting, embedding)]


def _map(setting: Setting, head: Tensor) -> list[StaticHint]:
    config, hints = setting.config, []
    d2t = setting.weights.get("d2t")
    if d2t is not None and config.vocab_map != "none":
        found = read_vocab_map(d2t.cpu(), setting.weights.get("t2d"), config.vocab_size)
        if found.reading == "placeholder":
            hints.append("d2t is all zero: draft ids are taken as the target's first ids")
        elif found.t2d_agrees is False:
            hints.append("d2t and t2d disagree about which tokens can be drafted")
        elif found.repeated:
            hints.append(f"d2t maps {found.repeated} draft ids to a token that another one already stands for")
    rows = head_rows(setting, head, target_token_ids(config, d2t)) if config.reduced_vocab else ""
    if isinstance(rows, Tensor):
        other = int((rows != target_token_ids(config, d2t)).sum())
        hints.append(
            f"{other} of {len(rows)} rows of lm_head are copies of the target's rows of other tokens than d2t says"
        )
    advice = "take d2t from the export that this head belongs to"
    return [StaticHint("DS203", statement, advice) for statement in hints]


def _never_applied(checkpoint: Checkpoint) -> list[StaticHint]:
    norms = [checkpoint.names.get(name, name) for name in checkpoint.never_applied if "norm" in name]
    if not norms:
        return []
    listed = ", ".join(norms[:3]) + (f" and {len(norms) - 3} more" if len(norms) > 3 else "")
    return [
        StaticHint("DS205", f"stored, but switched off: {listed}", "see which switch of `driftscope inspect` names it")
    ]


def _embedding(setting: Setting, embedding: Tensor) -> list[StaticHint]:
    own = setting.weights.get("embed_tokens.weight")
    if setting.config.embedding != "own" or own is None or own.shape != embedding.shape:
        return []
    sample = torch.linspace(0, len(own) - 1, min(_SAMPLE, len(own))).round().long()
    theirs = embedding.detach()[sample.to(embedding.device)].float().cpu()
    cosine = float(torch.cosine_similarity(own[sample.to(own.device)].float().cpu(), theirs, dim=-1).double().mean())
    if cosine >= _UNLIKE:
        return []
    statement = f"embed_tokens has nothing in common with the target's embedding (mean cosine {cosine:.2f})"
    return [
        StaticHint(
            "DS207", statement, "if it was not trained from scratch, run with the target's: --set embedding=target"
        )
    ]
