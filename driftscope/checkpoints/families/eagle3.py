"""What every EAGLE-3 layout has in common: how its switches are resolved. The family files say where they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from driftscope.checkpoints import sizes
from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families import mla as latent
from driftscope.checkpoints.families import parallel_drafting as masks
from driftscope.checkpoints.families.parallel_drafting import resolve_mask_token
from driftscope.checkpoints.reading.aux_ids import resolve_aux
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.checkpoints.reading.rope import resolve_rope
from driftscope.checkpoints.reading.vocab import read_vocab_map
from driftscope.errors import CheckpointError

_ACTIVATIONS = ("silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "relu2")


_ALL_ZERO = "d2t is all zero"


@dataclass(frozen=True)
class Traits:
    """Where a layout's own rules leave the common ones."""

    carry_keys: tuple[str, ...] = ("norm_output", "eagle_config.norm_output", "eagle_config.return_hidden_post_norm")
    carry_default_known: bool = False
    """Whether an absent carry key means pre-norm for certain, so that no warning is due."""
    norm_optional: bool = False
    """Whether the layout may leave out the final norm."""
    heads_default: dict[str, int] | None = None
    vocab_default: int | None = None
    theta_default: tuple[float, str] | None = None
    max_position_default: int | None = None


def resolve(board: Switchboard, traits: Traits | None = None) -> None:
    """Put every switch of an EAGLE-3 drafter.

    Raises:
        CheckpointError: tensors or config values that contradict each other, or a size that nothing tells.
    """
    traits = traits or Traits()
    board.put("layer_form", "eagle3", "weights", "q_proj reads twice the width")
    sizes.resolve_widths(board)
    hidden = board.get("hidden_size")
    first = latent.MARK if board.has(latent.MARK) else "layers.0.self_attn.q_proj.weight"
    reads = board.shape(first)[1]
    if reads != 2 * hidden:
        raise CheckpointError(
            f"{first.split('.')[-2]} of layer 0 reads {reads} features, expected {2 * hidden}: embedding and state,"
            f" {hidden} each"
        )
    sizes.resolve_heads(board, traits.heads_default)
    sizes.resolve_biases(board)
    resolve_source(board)
    resolve_fc_norms(board)
    resolve_carry(board, traits)
    resolve_residual(board)
    resolve_later_norm(board)
    resolve_common(board, traits)
    if board.get("feature_source") == "aux":
        resolve_aux(board)
    if board.get("carry") == "none":
        resolve_mask_token(
            board,
            "mask_token_id",
            "pard_token",
            "ptd_token_id",
            "dflash_config.mask_token_id",
            "eagle_config.mask_token_id",
        )


def resolve_common(board: Switchboard, traits: Traits) -> None:
    """Put what does not depend on the layer form: activation, eps, rope, window, vocabulary, head, embedding."""
    resolve_numbers(board)
    resolve_rope(board, default_theta=traits.theta_default, default_max=traits.max_position_default)
    latent.resolve_layout(board)
    resolve_window(board)
    sizes.resolve_vocab_sizes(board, traits.vocab_default)
    resolve_head(board)
    resolve_vocab(board)
    resolve_embedding(board)


def resolve_source(board: Switchboard) -> None:
    """Put feature_source and what belongs to it: aux features through fc, or the last hidden state as it is."""
    stated = board.flag("eagle_config.use_aux_hidden_state", "use_aux_hidden_state")
    if stated is None or stated[0]:
        board.put("feature_source", "aux", *(("config", stated[1]) if stated else ("default", "EAGLE-3")))
    else:
        board.put("feature_source", "final", "config", stated[1])
    board.put("final_feature_normed", True, "default", "vLLM")
    if board.get("feature_source") == "aux":
        sizes.resolve_features(board)
        return
    hidden = board.get("hidden_size")
    if board.user("feature_source") == "final" and board.has("fc.weight"):
        rows, columns = board.shape("fc.weight")
        raise CheckpointError(
            f"--set feature_source=final: fc.weight reads {columns:,} features for a width of {rows:,}, aux features of"
            " several layers, and the last state is one; leave it out"
        )
    board.put("fc", False, "config", "use_aux_hidden_state")
    board.put("fc_bias", False, "config", "use_aux_hidden_state")
    board.put("num_aux", 1, "config", "use_aux_hidden_state")
    board.put("target_hidden_size", hidden, "weights", "no fc, so the width of the drafter")


def resolve_fc_norms(board: Switchboard) -> None:
    """Put fc_norm and input_norm: on where their weights are stored, unless the config says otherwise."""
    for switch, tensor, keys in (
        ("fc_norm", "fc_norm.0.weight", ("fc_norm", "use_aux_norm", "eagle_config.fc_norm")),
        ("input_norm", "input_norm.weight", ("norm_before_fc", "eagle_config.norm_before_fc")),
    ):
        stated = board.flag(*keys)
        stored = board.has(tensor)
        if stated is None:
            board.put(switch, stored, "weights", tensor if stored else f"no {tensor}")
            continue
        board.put(switch, stated[0], "config", stated[1])
        if stored and not board.get(switch):
            board.warnings.append(f"{tensor} is stored, but {stated[1]} is false: never applied (--set {switch}=true)")
    if board.get("fc_norm") and board.get("input_norm"):
        board.warnings.append("fc_norm and input_norm are both on: applied one after the other, as vLLM and SGLang do")


def resolve_carry(board: Switchboard, traits: Traits) -> None:
    """Put carry and final_norm."""
    stated, masked = board.flag(*traits.carry_keys), masks.parallel(board)
    if masked:
        board.put("carry", "none", "weights" if masked == masks.TENSOR else "config", masked)
    elif stated is None:
        board.put("carry", "pre", "default", "EAGLE-3")
        if not traits.carry_default_known and board.user("carry") is None:
            board.warnings.append("the carry is not recorded: pre-norm (EAGLE-3) assumed (--carry post for EAGLE 3.1)")
    else:
        board.put("carry", "post" if stated[0] else "pre", "config", stated[1])
    if board.has("norm.weight"):
        board.put("final_norm", True, "weights", "norm.weight")
    elif traits.norm_optional:
        board.put("final_norm", False, "weights", "no norm.weight")
    else:
        board.put("final_norm", True, "default", "EAGLE-3")


def resolve_residual(board: Switchboard) -> None:
    stated = board.flag("norm_before_residual", "eagle_config.norm_before_residual")
    if stated is None:
        board.put("residual", "raw", "default", "EAGLE-3")
    else:
        board.put("residual", "normed" if stated[0] else "raw", "config", stated[1])
    stored = board.has("layers.0.hidden_norm.weight")
    if stored or board.get("feature_source") == "aux":
        board.put("state_norm", True, "weights" if stored else "default", "layers.0.hidden_norm.weight")
    else:
        board.put("state_norm", False, "weights", "no layers.0.hidden_norm.weight")


def resolve_later_norm(board: Switchboard) -> None:
    """Put later_layer_norm: under which name layers after the first store the norm that stands before attention."""
    later = range(1, board.get("num_layers"))
    plain = [j for j in later if board.has(f"layers.{j}.input_layernorm.weight")]
    hidden = [j for j in later if board.has(f"layers.{j}.hidden_norm.weight")]
    if hidden and not plain:
        board.put("later_layer_norm", "hidden_norm", "weights", f"layers.{hidden[0]}.hidden_norm.weight")
    else:
        name = f"layers.{plain[0]}.input_layernorm.weight" if plain else ""
        board.put("later_layer_norm", "input_layernorm", "weights" if plain else "default", name)
    if plain and hidden:
        board.warnings.append(
            "layers after the first store input_layernorm and hidden_norm; vLLM reads the former, SGLang and"
            " TensorRT-LLM the latter (--set later_layer_norm=...)"
        )


def resolve_numbers(board: Switchboard) -> None:
    """Put hidden_act, rms_norm_eps, logit_scale, embed_scale."""
    act = board.raw_value("hidden_act", "hidden_activation")
    board.put("hidden_act", *((str(act[0]), "config", act[1]) if act else ("silu", "default", "Llama")))
    if board.get("hidden_act") not in _ACTIVATIONS:
        raise CheckpointError(f"hidden_act is {board.get('hidden_act')!r}, expected one of {', '.join(_ACTIVATIONS)}")
    eps = board.real("rms_norm_eps", "layernorm_epsilon")
    board.put("rms_norm_eps", *((eps[0], "config", eps[1]) if eps else (1e-6, "default", "Llama")))
    scale = board.real("logit_scale")
    board.put("logit_scale", *((scale[0], "config", scale[1]) if scale else (1.0, "default")))
    embed = board.real("scale_emb", "embed_scale")
    board.put("embed_scale", *((embed[0], "config", embed[1]) if embed else (1.0, "default")))


def resolve_window(board: Switchboard) -> None:
    """Put sliding_window, one entry per layer: from layer_types, else from use_sliding_window (Qwen) or Mistral's."""
    layers: int = board.get("num_layers")
    window = board.number("sliding_window")
    types = board.raw_value("layer_types")
    if window and types and isinstance(types[0], list):
        kinds = (types[0] + types[0][-1:] * layers)[:layers]
        windows = tuple(window[0] if kind == "sliding_attention" else None for kind in kinds)
        board.put("sliding_window", windows if any(windows) else None, "config", "layer_types")
        return
    uses = board.flag("use_sliding_window")
    on = uses[0] if uses else board.raw.get("model_type") == "mistral"
    if window and on:
        board.put("sliding_window", (window[0],) * layers, "config", "sliding_window")
    else:
        board.put("sliding_window", None, "default", "full attention")


def resolve_head(board: Switchboard) -> None:
    """Put head: the drafter's own where one is stored, else the target's where both have one vocabulary."""
    tied = board.flag("tie_word_embeddings")
    if board.has("lm_head.weight"):
        board.put("head", "own", "weights", "lm_head.weight")
        if tied and tied[0] and board.get("draft_vocab_size") != board.get("vocab_size"):
            board.warnings.append(
                "tie_word_embeddings is true although the stored lm_head is smaller than the vocabulary: engines that"
                " obey it run a wrong head; the stored one is used"
            )
        return
    board.put("head", "target", "default", "no lm_head.weight")
    if tied and tied[0] and board.has("embed_tokens.weight"):
        board.warnings.append("tie_word_embeddings is true: engines make embed_tokens the head, here the target's is")
    if board.get("hidden_size") != board.get("target_hidden_size") and board.get("head") == "target":
        board.problems.append(
            f"lm_head.weight is missing, and the target's head ({board.get('target_hidden_size')} wide) does not fit"
            f" the drafter ({board.get('hidden_size')} wide)"
        )
    if board.get("draft_vocab_size") != board.get("vocab_size") and board.get("head") == "target":
        board.problems.append(
            f"lm_head.weight is missing, and the target's head cannot stand in for a draft vocabulary of"
            f" {board.get('draft_vocab_size')} out of {board.get('vocab_size')}"
        )


def resolve_vocab(board: Switchboard) -> None:
    """Put vocab_map from d2t and t2d."""
    draft, full = board.get("draft_vocab_size"), board.get("vocab_size")
    if draft > full:
        board.problems.append(f"the draft vocabulary ({draft}) is larger than the target's ({full})")
    if not board.has("d2t"):
        board.put("vocab_map", "none", "weights", "no d2t")
        if draft < full and board.user("vocab_map") is None:
            board.problems.append(
                f"d2t is missing: nothing says which of the target's {full} tokens the {draft} rows of lm_head are"
                " (--set vocab_map=none if they are the first)"
            )
        return
    if board.shape("d2t", 1)[0] != draft:
        board.problems.append(f"d2t has {board.shape('d2t', 1)[0]} entries for a draft vocabulary of {draft}")
        return
    if not board.infos["d2t"].dtype.startswith("int"):
        board.problems.append(f"d2t is stored as {board.infos['d2t'].dtype}, expected int64")
        return
    t2d = board.load("t2d") if board.has("t2d") else None
    found = read_vocab_map(board.load("d2t"), t2d, full, board.stated.vocab_map)
    if found.reading == "unusable" and board.user("vocab_map") is None:
        board.problems.append(f"d2t maps outside the target's {full} tokens (to {found.largest}), however it is read")
    counted = found.reading == "placeholder" and found.largest == draft - 1 and found.reason != _ALL_ZERO
    reading = "index" if found.reading == "index" or counted else "offset"
    identity = reading == "offset" and draft == full and found.increasing and found.largest == draft - 1
    board.put("vocab_map", "none" if identity else reading, "weights", f"d2t: {found.reason}")
    if found.reading == "index" and board.stated.vocab_map is None:
        board.warnings.append("d2t holds token ids, not offsets as every engine expects; it is read as ids")
    if found.reading == "placeholder":
        board.warnings.append(
            f"{found.reason.partition(':')[0]}, which looks like an unset default: draft ids are taken as the target's first"
            " ids, rarely what was trained"
        )
    if found.t2d_agrees is False:
        board.warnings.append(
            f"d2t and t2d disagree about which tokens can be drafted: t2d marks {found.t2d_count:,}, lm_head has {draft:,}"
            f" rows, and {found.shared or 0:,} of the ids of d2t are marked"
        )
    elif found.repeated:
        board.warnings.append(f"d2t maps {found.repeated} draft ids to a token that another one already stands for")
    elif not found.increasing:
        board.warnings.append("the token ids of d2t do not rise, as every trainer writes them")


def resolve_embedding(board: Switchboard) -> None:
    """Put embedding: the drafter's own where one is stored, else the target's where the widths agree."""
    if board.has("embed_tokens.weight"):
        board.put("embedding", "own", "weights", "embed_tokens.weight")
        return
    board.put("embedding", "target", "default", "no embed_tokens.weight")
    hidden, width = board.get("hidden_size"), board.get("target_hidden_size")
    if hidden != width:
        board.problems.append(
            f"embed_tokens.weight is missing, and the target's ({width} wide) does not fit the drafter ({hidden} wide)"
        )


def require(config: DrafterConfig, layout: str, **values: Any) -> None:
    """Refuse a config that a layout cannot hold.

    Raises:
        CheckpointError: a switch has another value than the layout is bound to.
    """
    bound = {"layer_form": "eagle3", "feature_source": "aux", "state_norm": True} | values
    for switch, value in bound.items():
        if getattr(config, switch) != value:
            raise CheckpointError(f"the {layout} layout holds no drafter with {switch} = {getattr(config, switch)}")


def layer_outputs(config: DrafterConfig) -> list[int]:
    """The aux boundaries as ids of the layers whose output they are.

    Raises:
        CheckpointError: boundary 0, which is no layer's output.
    """
    boundaries = config.aux_boundaries or ()
    if 0 in boundaries:
        raise CheckpointError("boundary 0 (the embeddings) is no layer's output; use a layout that stores boundaries")
    return [b - 1 for b in boundaries]


def architecture(config: DrafterConfig, plain: str) -> str:
    """vLLM's class for latent attention, else the layout's own."""
    return plain if config.kv_lora_rank is None else "Eagle3DeepseekV2ForCausalLM"


def llama_json(config: DrafterConfig) -> dict[str, Any]:
    """The config.json keys that EAGLE-3 layouts share, spelled as a Llama config of the Hub."""
    c = config
    written: dict[str, Any] = {
        "model_type": "llama",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads,
        "head_dim": c.head_dim,
        "num_hidden_layers": c.num_layers,
        "vocab_size": c.vocab_size,
        "draft_vocab_size": c.draft_vocab_size,
        "hidden_act": c.hidden_act,
        "rms_norm_eps": c.rms_norm_eps,
        "max_position_embeddings": c.rope.max_position,
        "rope_theta": c.rope.theta,
        "rope_scaling": dict(c.rope.scaling) if c.rope.scaling else None,
        "attention_bias": c.attention_bias,
        "mlp_bias": c.mlp_bias,
        "tie_word_embeddings": False,
        "fc_norm": c.fc_norm,
        "norm_before_fc": c.input_norm,
        "norm_output": c.carry == "post",
        "norm_before_residual": c.residual == "normed",
    }
    if c.kv_lora_rank is not None and c.qk_rope_head_dim is not None:
        del written["head_dim"]
        written |= {
            "model_type": "kimi_k2",
            "q_lora_rank": c.q_lora_rank,
            "kv_lora_rank": c.kv_lora_rank,
            "qk_nope_head_dim": c.head_dim - c.qk_rope_head_dim,
            "qk_rope_head_dim": c.qk_rope_head_dim,
            "v_head_dim": c.v_head_dim,
            "rope_interleave": c.rope.layout == "interleaved",
        }
    if c.mask_token_id is not None and c.layer_form == "eagle3":
        written["mask_token_id"] = c.mask_token_id
    if c.target_hidden_size != c.hidden_size:
        written["target_hidden_size"] = c.target_hidden_size
    if c.fc_bias:
        written["bias"] = True
    if c.num_aux != 3:
        written["num_aux_hidden_states"] = c.num_aux
    if c.sliding_window:
        written["sliding_window"] = next(w for w in c.sliding_window if w)
        written["layer_types"] = ["sliding_attention" if w else "full_attention" for w in c.sliding_window]
    for key, value, default in (
        ("logit_scale", c.logit_scale, 1.0),
        ("embed_scale", c.embed_scale, 1.0),
        ("partial_rotary_factor", c.rope.partial, 1.0),
    ):
        if value != default:
            written[key] = value
    return written
