"""The measure: text-fed loss and agreement per prompt and step, for one setting after another.

Only what tells settings apart is computed: keys and values of all rows, and the chains of a few anchors, all prompts of a
batch in one pass. A drafted chain whose tokens so far equal the text's *is* the text-fed chain, so acceptance needs no
second run: step k is accepted where the text-fed steps 1..k all agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from driftscope.audit.batches import DEPTH, LAGS, Batch, Material
from driftscope.audit.setting import Reach, Setting
from driftscope.chain.chain import chain_step
from driftscope.chain.prefix_keys import prefix_keys
from driftscope.drafter import Drafter
from driftscope.drafter.argmax import largest
from driftscope.drafter.attention import ChainMemory, Prefix

FLOOR = 1e-3
"""Weight of a uniform distribution mixed into the drafter's: bounds the loss, also outside the draft vocabulary."""


@dataclass(frozen=True)
class Scores:
    """Per prompt and step, summed over anchors. A prompt that was not run has no anchors, and NaN for its means."""

    loss: NDArray[np.float64]
    """[prompt, step] cross-entropy in nats against the target's distribution, over the whole vocabulary."""
    agree: NDArray[np.float64]
    """[prompt, step] anchors whose top-1 token is the text's."""
    reached: NDArray[np.float64]
    """[prompt, step] anchors whose drafted tokens before this step are all the text's."""
    accepted: NDArray[np.float64]
    """[prompt, step] anchors whose drafted tokens up to this step are all the text's."""
    anchors: NDArray[np.float64]
    """[prompt]"""
    finite: bool
    """Whether every logit was a number."""

    @property
    def mean_loss(self) -> NDArray[np.float64]:
        """[prompt, step] nats."""
        return self._per_anchor(self.loss)

    @property
    def agreement(self) -> NDArray[np.float64]:
        """[prompt, step] share of anchors."""
        return self._per_anchor(self.agree)

    @property
    def length(self) -> NDArray[np.float64]:
        """[prompt] accepted tokens per anchor, of at most DEPTH."""
        return self._per_anchor(self.accepted).sum(1)

    def joined(self, other: Scores) -> Scores:
        """With the scores of other prompts of the same material."""
        return Scores(
            loss=self.loss + other.loss,
            agree=self.agree + other.agree,
            reached=self.reached + other.reached,
            accepted=self.accepted + other.accepted,
            anchors=self.anchors + other.anchors,
            finite=self.finite and other.finite,
        )

    def _per_anchor(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return sums / np.where(self.anchors > 0, self.anchors, np.nan)[:, None]


@dataclass
class Trace:
    """What a run leaves behind, per batch, for settings that enter later."""

    first: dict[int, tuple[ChainMemory, Tensor]]
    """What the chains attend to after step 1, and the residual of step 1."""
    residuals: dict[int, list[Tensor]]
    """[batch][step] -> [prompt * anchor, hidden]."""


class Runner:
    """Runs settings over one material. `embedding` and `head` are the target's."""

    def __init__(self, material: Material, embedding: Tensor, head: Tensor, dtype: torch.dtype) -> None:
        self.material = material
        self.dtype = dtype
        self.embedding = embedding.detach().to(material.device, dtype)
        self.head = head.detach().to(material.device, dtype)
        self._built: tuple[Setting, Drafter] | None = None
        self._states: tuple[Setting, dict[int, Tensor]] | None = None

    def cast(self, setting: Setting) -> Setting:
        """The setting with its weights on the device, so that building it again copies nothing."""
        weights = {
            name: tensor.to(self.material.device, self.dtype) if tensor.is_floating_point() else tensor
            for name, tensor in setting.weights.items()
        }
        return replace(setting, weights=weights)

    def build(self, setting: Setting) -> Drafter:
        return setting.build(self.embedding, self.head, self.material.device, self.dtype)

    def _drafter(self, setting: Setting, *, keep: bool) -> Drafter:
        """Built, or the one that was kept, where only the lens is another."""
        kept = self._built
        if kept is not None and kept[0].config is setting.config and kept[0].weights is setting.weights:
            return kept[1]
        drafter = self.build(setting)
        if keep:
            self._built = setting, drafter
        return drafter

    @torch.no_grad()
    def run(
        self,
        setting: Setting,
        *,
        reach: Reach = "all",
        base: Trace | None = None,
        batches: Sequence[int] | None = None,
        depth: int = DEPTH,
    ) -> tuple[Scores, Trace]:
        """Measure a setting. With a `base`, the trace of the setting that it differs from, only what `reach` says is run.

        batches: indices, all of them without it. depth: steps of a chain.
        """
        drafter = self._drafter(setting, keep=base is None and depth == DEPTH)
        if base is None:
            reach = "all"
            self._states = (setting, {}) if depth == DEPTH else self._states
        if reach == "chain" and drafter.config.num_layers > 1:
            # Keys and values of later layers depend on everything before them.
            reach = "all"
        trace = Trace({}, {})
        for index in range(len(self.material.batches)) if batches is None else batches:
            if base is not None and reach in ("logits", "labels"):
                trace.residuals[index] = base.residuals[index]
                continue
            batch = self.material.batches[index]
            embedded = self.material.embedded(setting, batch)
            shared = None if base is None or reach == "all" else base.first[index]
            if shared is None or reach == "chain":
                prefix = None if shared is None else shared[0].prefix
                shared = self._first(drafter, setting, index, embedded, prefix)
            first = trace.first[index] = shared
            trace.residuals[index] = self._later(drafter, setting, embedded, first, depth)
        return self._score(drafter, setting, trace, depth), trace

    def _first(
        self, drafter: Drafter, setting: Setting, index: int, embedded: Tensor, prefix: list[Prefix] | None
    ) -> tuple[ChainMemory, Tensor]:
        """Keys and values of the rows of the text, unless they are given, then step 1."""
        batch = self.material.batches[index]
        states = self._fused(drafter, setting, index)
        prefix = prefix or prefix_keys(drafter, states, embedded[:, 1 : batch.rows + 1])
        places = batch.anchors[..., None].expand(-1, -1, states.shape[-1])
        memory = ChainMemory(prefix, batch.anchors, drafter.windows)
        return memory, self._step(drafter, setting, memory, states.gather(1, places).flatten(0, 1), embedded, 1)

    def _fused(self, drafter: Drafter, setting: Setting, index: int) -> Float[Tensor, "prompt row hidden"]:
        """The states of all rows of a batch; those of the declared setting are kept for whatever fuses alike."""
        if self._states is not None and self._states[0].fused_by() == setting.fused_by():
            held = self._states[1]
            if index not in held:
                held[index] = fused(drafter, self.material.features(setting, self.material.batches[index], self.dtype))
            return held[index]
        return fused(drafter, self.material.features(setting, self.material.batches[index], self.dtype))

    def _later(
        self, drafter: Drafter, setting: Setting, embedded: Tensor, first: tuple[ChainMemory, Tensor], depth: int
    ) -> list[Tensor]:
        """Residuals of all steps, of which `first` is the first; its memory is left as it is."""
        memory, residuals = replace(first[0].after(1), windows=drafter.windows), [first[1]]
        for step in range(2, depth + 1):
            if not setting.lens.own_rows:
                memory = memory.after(1, dropped=step - 2)
            state = drafter.leave(residuals[-1])[0]
            residuals.append(self._step(drafter, setting, memory, state, embedded, step))
        return residuals

    def _step(
        self, drafter: Drafter, setting: Setting, memory: ChainMemory, state: Tensor, embedded: Tensor, step: int
    ) -> Tensor:
        tokens = embedded.gather(1, memory.anchors + step).flatten()
        first = memory.anchors + setting.lens.chain_shift
        positions = (first + (step - 1) * drafter.config.position_increment).flatten()
        return chain_step(drafter, memory, state, tokens, positions)

    def _score(self, drafter: Drafter, setting: Setting, trace: Trace, depth: int) -> Scores:
        prompts = len(self.material.captures)
        loss, agree, reached, accepted = (np.zeros((prompts, depth)) for _ in range(4))
        anchors = np.zeros(prompts)
        finite = True
        reader = _Reader(drafter)
        for index, residuals in trace.residuals.items():
            batch = self.material.batches[index]
            place, valid = batch.prompts.numpy(), batch.valid
            anchors[place] = valid.sum(1).cpu().numpy()
            ahead = valid.clone()
            for step, residual in enumerate(residuals, start=1):
                _, logits = drafter.finish(residual)
                offset = step + setting.lens.lag - (LAGS[0] + 1)
                ids, probabilities = batch.top_ids[:, :, offset], batch.top_probabilities[:, :, offset]
                nats, best, sound = reader(logits, ids.flatten(0, 1), probabilities.flatten(0, 1))
                finite &= sound
                text = batch.token_ids.gather(1, batch.anchors + 1 + step + setting.lens.lag)
                same = (best.view_as(text) == text) & valid
                reached[place, step - 1] = ahead.sum(1).cpu().numpy()
                ahead = ahead & same
                accepted[place, step - 1] = ahead.sum(1).cpu().numpy()
                agree[place, step - 1] = same.sum(1).cpu().numpy()
                loss[place, step - 1] = (nats.view_as(valid) * valid).sum(1).cpu().numpy()
        return Scores(loss, agree, reached, accepted, anchors, finite)


class _Reader:
    """Loss and best token of logits over the draft vocabulary."""

    def __init__(self, drafter: Drafter) -> None:
        self.target_ids = drafter.target_ids
        self.size = drafter.config.vocab_size
        self.draft_ids = torch.full((self.size,), -1, device=self.target_ids.device)
        self.draft_ids[self.target_ids] = torch.arange(len(self.target_ids), device=self.target_ids.device)
        self.repeated = len(self.target_ids.unique()) < len(self.target_ids)

    def __call__(self, logits: Tensor, ids: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Nats and best token per row, and whether all logits are numbers."""
        own = logits.float().softmax(-1)
        sound = bool(torch.isfinite(own).all())
        own = own.nan_to_num(0.0)
        if self.repeated:
            # Draft ids that stand for one token add up.
            whole = own.new_zeros(len(own), self.size).index_add_(1, self.target_ids, own)
            chance = whole.gather(1, ids)
        else:
            draft = self.draft_ids[ids]
            chance = own.gather(1, draft.clamp(min=0)) * (draft >= 0)
        chance = (1 - FLOOR) * chance.double() + FLOOR / self.size
        return -(probabilities.double() * chance.log()).sum(-1), self.target_ids[largest(own)], sound


def step_one_loss(drafter: Drafter, residual: Tensor, batch: Batch) -> float:
    """Nats summed over the anchors of a batch, of a residual [prompt * anchor, hidden] of step 1."""
    offset = 1 - (LAGS[0] + 1)
    ids, probabilities = batch.top_ids[:, :, offset], batch.top_probabilities[:, :, offset]
    nats, _, _ = _Reader(drafter)(drafter.finish(residual)[1], ids.flatten(0, 1), probabilities.flatten(0, 1))
    return float((nats.view_as(batch.valid) * batch.valid).sum())


def fused(drafter: Drafter, features: Float[Tensor, "prompt row width"]) -> Float[Tensor, "prompt row hidden"]:
    """The states that the rows of the text start from."""
    return drafter.fuse(features.flatten(0, 1)).unflatten(0, features.shape[:2])
