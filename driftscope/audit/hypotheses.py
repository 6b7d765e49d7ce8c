"""The hypotheses: for every switch, what else the checkpoint could have been trained with. One small entry a switch.

An entry yields alternatives to the setting that it is given, and a reason where the shapes or the stored tensors leave none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from driftscope.audit import vocabulary
from driftscope.audit.setting import Reach, Setting
from driftscope.audit.spelled import spelled, switch_value
from driftscope.checkpoints.reading.aux_ids import default_boundaries
from driftscope.drafter.build import target_token_ids
from driftscope.errors import CheckpointError

_GELU = "gelu_pytorch_tanh"


@dataclass(frozen=True)
class TargetFacts:
    """What the entries ask of the target."""

    num_layers: int
    embedding: Tensor
    """[vocab, hidden]"""
    head: Tensor
    """[vocab, hidden]"""
    rope_theta: float | None = None
    rope_scaling: Mapping[str, Any] | None = None
    written_theta: float | None = None
    """The rope base that the drafter's config says, whatever a flag made of it."""


@dataclass(frozen=True)
class Hypothesis:
    """One alternative to a setting, or the reason why a switch has none."""

    switch: str
    declared: str
    alternative: str
    code: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    lens: Mapping[str, Any] = field(default_factory=dict)
    reach: Reach = "all"
    ruled_out: str = ""
    """Why it cannot be run."""
    searched: bool = False
    """Whether it was chosen for its score on other prompts."""
    settled_by: str = ""
    """What would tell it from the declared value where these texts do not, if more is known than that more of them help."""

    @property
    def name(self) -> str:
        return f"{self.switch}: {self.alternative}"

    def apply(self, setting: Setting) -> Setting:
        return setting.changed(self.changes, self.weights, self.lens)


Entry = Callable[[Setting, TargetFacts], Iterator[Hypothesis]]


def hypotheses(setting: Setting, target: TargetFacts) -> list[Hypothesis]:
    """All of them, in the order in which equals are preferred."""
    return [found for entry in ENTRIES for found in entry(setting, target)]


def _carry(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    for other in ("pre", "post", *(["second"] if s.config.wide_output else [])):
        if other != s.config.carry:
            missing = "no norm.weight is stored" if other == "post" and "norm.weight" not in s.weights else ""
            yield _plain(s, "DS201", "carry", other, reach="later", ruled_out=missing)


def _aux(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, layers = s.config, t.num_layers
    if config.feature_source != "aux" or config.aux_boundaries is None:
        yield _none("aux_boundaries", "DS202", config.feature_source, "the drafter reads the last hidden state only")
        return
    declared = config.aux_boundaries
    options: dict[tuple[int, ...], str] = {}
    for shift in (1, -1):
        options.setdefault(tuple(b + shift for b in declared), f"all {shift:+d}")
    if len(declared) == 3:
        options.setdefault(default_boundaries(layers), "published default")
    seen = {declared}
    for boundaries, why in options.items():
        if boundaries in seen:
            continue
        seen.add(boundaries)
        outside = min(boundaries) < 0 or max(boundaries) > layers
        yield aux_hypothesis(s, boundaries, f"{spelled(boundaries)} ({why})", "outside the target" if outside else "")
    for order in aux_orders(declared):
        yield aux_hypothesis(s, order, f"{spelled(order)} (order)")


def aux_orders(boundaries: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Other orders of the boundaries: all of them up to three, else swaps of neighbours and the reverse."""
    if len(boundaries) <= 3:
        return list(itertools.permutations(boundaries))[1:]
    swaps = []
    for i in range(len(boundaries) - 1):
        order = list(boundaries)
        order[i], order[i + 1] = order[i + 1], order[i]
        swaps.append(tuple(order))
    return [*swaps, boundaries[::-1]]


def aux_hypothesis(
    s: Setting, boundaries: tuple[int, ...], alternative: str, ruled_out: str = "", *, searched: bool = False
) -> Hypothesis:
    """The same drafter on other boundaries."""
    declared = spelled(s.config.aux_boundaries or ())
    changes = {"aux_boundaries": boundaries}
    return Hypothesis("aux_boundaries", declared, alternative, "DS202", changes, ruled_out=ruled_out, searched=searched)


def _source(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, switch, code = s.config, "feature_source", "DS206"
    if config.feature_source == "final":
        words = ("last hidden state before the final norm", "last hidden state after the final norm")
        normed = config.final_feature_normed
        yield Hypothesis(switch, words[normed], words[not normed], code, {"final_feature_normed": not normed})
        return
    last = (config.aux_boundaries or (-1,))[-1]
    if last == t.num_layers:
        words = (f"boundary {last} before the final norm", f"boundary {last} after the final norm")
        after = s.lens.last_after_norm
        yield Hypothesis(switch, words[after], words[not after], code, lens={"last_after_norm": not after})
    else:
        yield _none(switch, code, "aux", f"fc reads {config.num_aux} aux features, and none is the last boundary")


def _vocab(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, switch, code = s.config, "vocab_map", "DS203"
    declared = config.vocab_map
    if not config.reduced_vocab and declared == "none":
        yield _none(switch, code, declared, "the draft vocabulary is the target's")
        return
    ids = target_token_ids(config, s.weights.get("d2t"))
    for other in ("offset", "index", "none"):
        if other == declared:
            continue
        word = "placeholder (the first ids)" if other == "none" else other
        if other != "none" and "d2t" not in s.weights:
            yield _none(switch, code, declared, "no d2t is stored", word)
            continue
        try:
            same = torch.equal(target_token_ids(config.replace("user", vocab_map=other), s.weights.get("d2t")), ids)
        except CheckpointError:
            yield _none(switch, code, declared, "ids leave the target's vocabulary", word)
            continue
        reason = "the same ids" if same else ""
        yield Hypothesis(switch, declared, word, code, {"vocab_map": other}, reach="logits", ruled_out=reason)
    for word, found in vocabulary.other_maps(s, t.head, ids):
        if isinstance(found, str):
            yield _none(switch, code, declared, found, word)
            continue
        d2t = found - torch.arange(len(found))
        changes = {"vocab_map": "offset"}
        yield Hypothesis(switch, declared, word, code, changes, {"d2t": d2t}, reach="logits")


def _head(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, switch, code = s.config, "head", "DS207"
    if config.head == "own":
        if config.hidden_size != t.head.shape[1]:
            yield _none(switch, code, "own", f"the target's head is {t.head.shape[1]} wide", "target")
            return
        ids = target_token_ids(config, s.weights.get("d2t"))
        rows = t.head.detach()[ids.to(t.head.device)]
        same = torch.equal(rows.float().cpu(), s.weights["lm_head.weight"].float().cpu())
        reason = "the same rows" if same else ""
        yield Hypothesis(
            switch, "own", "the target's rows", code, weights={"lm_head.weight": rows}, reach="logits", ruled_out=reason
        )
    elif "lm_head.weight" in s.weights:
        yield _plain(s, code, switch, "own", reach="logits")
    else:
        yield _none(switch, code, "target", "no lm_head.weight is stored", "own")


def _embedding(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, switch, code = s.config, "embedding", "DS207"
    stored = s.weights.get("embed_tokens.weight")
    if config.embedding == "own":
        fits = t.embedding.shape == (config.vocab_size, config.hidden_size)
        reason = "" if fits else f"the target's embedding is {t.embedding.shape[1]} wide"
        if fits and stored is not None and torch.equal(stored.float().cpu(), t.embedding.detach().float().cpu()):
            reason = "the same rows"
        yield _plain(s, code, switch, "target", ruled_out=reason)
    elif stored is not None:
        yield _plain(s, code, switch, "own")
    else:
        yield _none(switch, code, "target", "no embed_tokens.weight is stored", "own")
    scale = math.sqrt(config.hidden_size)
    for other in (1.0, scale):
        if not math.isclose(other, config.embed_scale):
            normed = config.layer_form != "eagle1"
            reason = "the norm of the embedding takes any scale away" if normed else ""
            yield _plain(s, code, "embed_scale", other, ruled_out=reason)
    if config.layer_form == "mtp":
        yield _plain(s, code, "mask_first_embed", not config.mask_first_embed)


def _rope(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    rope, code = s.config.rope, "DS204"
    options = {t.written_theta: "as the config says"} if t.written_theta else {}
    options.setdefault(10000.0, "trainers' default")
    if t.rope_theta:
        options.setdefault(float(t.rope_theta), "the target's")
    for common in (500000.0, 1000000.0):
        options.setdefault(common, "in wide use")
    for theta, why in options.items():
        if not math.isclose(theta, rope.theta):
            yield _plain(s, code, "rope.theta", theta, word=f"{theta:g} ({why})")
    if rope.scaling:
        yield _plain(s, code, "rope.scaling", None, word="off")
    elif t.rope_scaling:
        theirs = _plain(s, code, "rope.scaling", dict(t.rope_scaling), word="the target's")
        yield replace(theirs, settled_by=_scaling_length(t.rope_scaling, s.config.rope.max_position))
    else:
        yield _none("rope.scaling", code, "off", "neither the drafter nor the target has any", "on")
    if not math.isclose(rope.partial, 1.0):
        yield _plain(s, code, "rope.partial", 1.0, word="1 (whole heads)")
    fixed = s.config.layer_config is not None and "kv_lora_rank" not in s.config.layer_config
    reason = "the target's layer turns its heads in one way" if fixed else ""
    yield _plain(s, code, "rope.layout", "interleaved" if rope.layout == "neox" else "neox", ruled_out=reason)


def _scaling_length(scaling: Mapping[str, Any], limit: int) -> str:
    """Which texts show a scaling: those beyond the length that it was made to go beyond."""
    length = scaling.get("original_max_position_embeddings") or limit
    return f"texts of more than {length:,} tokens, the length before scaling"


def _norms(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, code = s.config, "DS205"
    eagle3 = config.layer_form == "eagle3"
    no_norm = "the first layer has no norm for the state"
    other = "normed" if config.residual == "raw" else "raw"
    yield _plain(s, code, "residual", other, reach="chain", ruled_out="" if eagle3 else no_norm)
    yield _plain(s, code, "double_norm", not config.double_norm, ruled_out="" if eagle3 else no_norm)
    if config.state_norm and eagle3:
        yield _plain(s, code, "state_norm", False)
    if config.final_norm or "norm.weight" in s.weights:
        yield _plain(s, code, "final_norm", not config.final_norm, reach="logits")
    else:
        ones = torch.full((config.hidden_size,), 1.0 - config.norm_offset)
        weights = {"norm.weight": ones}
        yield _plain(s, code, "final_norm", True, word="on, weights of one", reach="logits", weights=weights)
    if config.feature_source == "aux" and eagle3:
        yield from _input_norms(s)
    else:
        yield _none("fc_norm", code, "off", "the drafter reads no aux features", "on")
    word = "w" if config.norm_offset else "1 + w"
    own_form = "the target's layer brings its form along" if config.layer_config is not None else ""
    yield _plain(s, code, "norm_offset", 0.0 if config.norm_offset else 1.0, word=word, ruled_out=own_form)
    eps = 1e-5 if math.isclose(config.rms_norm_eps, 1e-6) else 1e-6
    yield _plain(s, code, "rms_norm_eps", eps)
    if config.qk_norm:
        yield _plain(s, code, "qk_norm", False)
    if config.num_layers > 1 and eagle3:
        other = "hidden_norm" if config.later_layer_norm == "input_layernorm" else "input_layernorm"
        stored = f"layers.1.{other}.weight" in s.weights
        reason = "" if stored else f"no layers.1.{other}.weight is stored"
        yield _plain(s, code, "later_layer_norm", other, ruled_out=reason)


def _input_norms(s: Setting) -> Iterator[Hypothesis]:
    """No norm, one, or one per aux feature before fc; with weights of one where none are stored."""
    config = s.config
    wide = config.target_hidden_size
    offset = 1.0 - config.norm_offset
    forms = {
        (False, False): "none",
        (True, False): "one per aux feature",
        (False, True): "one over all",
    }
    declared = forms.get((config.fc_norm, config.input_norm), "both")
    for (fc_norm, input_norm), word in forms.items():
        if word == declared:
            continue
        weights = {}
        if fc_norm and "fc_norm.0.weight" not in s.weights:
            weights = {f"fc_norm.{i}.weight": torch.full((wide,), offset) for i in range(config.num_aux)}
        if input_norm and "input_norm.weight" not in s.weights:
            weights = {"input_norm.weight": torch.full((wide * config.num_aux,), offset)}
        label = f"{word}, weights of one" if weights else word
        changes = {"fc_norm": fc_norm, "input_norm": input_norm}
        yield Hypothesis("norms before fc", declared, label, "DS205", changes, weights)


def _positions(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    for other in (0, 1, 2):
        if other != s.config.position_increment:
            yield _plain(s, "DS208", "position_increment", other, reach="later")
    yield from _shown(s, "feature_shift", "row i reads position i{}", "feature_shift", (0, -1, -2))
    yield from _shown(s, "token_shift", "row i embeds token i{}", "token_shift", (0, -1), away=1)
    yield from _shown(s, "prediction_lag", "row i predicts token i{}", "lag", (0, -2, -1, 1, 2), away=2, reach="labels")
    yield from _shown(
        s, "chain_position", "step 1 of anchor t stands at t{}", "chain_shift", (0, -2, -1, 1, 2), reach="chain"
    )


def _shown(
    s: Setting, switch: str, words: str, part: str, options: Sequence[int], *, away: int = 0, reach: Reach = "all"
) -> Iterator[Hypothesis]:
    """Other values of a part of the lens that counts positions. `words` take the distance, which is `away` at value 0."""
    now = getattr(s.lens, part)

    def word(value: int) -> str:
        return words.format(f"{value + away:+d}" if value + away else "")

    for value in options:
        if value != now:
            yield Hypothesis(switch, word(now), word(value), "DS208", lens={part: value}, reach=reach)


def _layer(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    config, code = s.config, "DS209"
    first, second = "embedding first", "state first"
    declared, other = (first, second) if config.embed_first else (second, first)
    yield Hypothesis("embed_first", declared, other, code, {"embed_first": not config.embed_first})
    for size in (config.head_dim // 2, config.head_dim * 2):
        heads, kv_heads = (count * config.head_dim / size for count in (config.num_heads, config.num_kv_heads))
        whole = heads == int(heads) and kv_heads == int(kv_heads) and size % 2 == 0 and size > 1
        bound = config.qk_norm or config.learned_sinks
        reason = "" if whole and not bound else "the stored tensors do not divide so"
        if config.kv_lora_rank is not None or config.layer_config is not None:
            reason = "the layer's other sizes settle it"
        changes = {"head_dim": size, "num_heads": int(heads), "num_kv_heads": int(kv_heads)}
        yield Hypothesis("head_dim", str(config.head_dim), str(size), code, changes, ruled_out=reason)
    act = _GELU if config.hidden_act in ("silu", "swish") else "silu"
    yield _plain(s, code, "hidden_act", act, reach="chain")
    for switch in ("fc_bias", "attention_bias", "output_bias", "mlp_bias"):
        if getattr(config, switch):
            yield _plain(s, code, switch, False)
    if config.learned_sinks:
        yield _plain(s, code, "learned_sinks", False)
    if not math.isclose(config.logit_scale, 1.0):
        yield _plain(s, code, "logit_scale", 1.0, reach="logits")
    if config.sliding_window and any(config.sliding_window):
        yield _plain(s, code, "sliding_window", None, word="full attention")
    wide = "2H: embedding and state side by side" if config.layer_form == "eagle3" else "H: what fc made of both"
    yield _none("layer_form", code, config.layer_form, f"attention reads {wide}", "another")


def _kept_rows(s: Setting, t: TargetFacts) -> Iterator[Hypothesis]:
    code = "DS210"
    for other in ("kept", "round", "step"):
        if other != s.config.draft_kv:
            yield _plain(s, code, "draft_kv", other, word=_KEPT[other], reach="chain")
    if s.lens.own_rows and s.config.draft_kv == "kept":
        word = "rows of earlier steps dropped, those of the text kept"
        yield Hypothesis("draft_kv", "kept", word, code, lens={"own_rows": False}, reach="later")


_KEPT = {"kept": "kept", "round": "round: without the rows of the text", "step": "step: every step alone"}
ENTRIES: tuple[Entry, ...] = (
    _carry, _vocab, _aux, _source, _norms, _rope, _head, _embedding, _positions, _layer, _kept_rows,
)  # fmt: skip


def _plain(
    s: Setting,
    code: str,
    switch: str,
    value: Any,
    *,
    word: str | None = None,
    reach: Reach = "all",
    ruled_out: str = "",
    weights: Mapping[str, Tensor] | None = None,
) -> Hypothesis:
    declared = spelled(switch_value(s.config, switch))
    return Hypothesis(
        switch, declared, word or spelled(value), code, {switch: value}, weights or {}, reach=reach, ruled_out=ruled_out
    )


def _none(switch: str, code: str, declared: str, reason: str, alternative: str = "none") -> Hypothesis:
    return Hypothesis(switch, declared, alternative, code, ruled_out=reason)
