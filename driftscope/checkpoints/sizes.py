"""Sizes: counted in the weights, compared with what the config says, and asked for where neither tells."""

from __future__ import annotations

from typing import Any

from driftscope.checkpoints.config import DrafterConfig
from driftscope.checkpoints.families.decoder_layer import layer_shapes
from driftscope.checkpoints.families.mla import MARK, resolve_latent
from driftscope.checkpoints.reading.aux_ids import find_aux_ids
from driftscope.checkpoints.reading.board import Switchboard
from driftscope.checkpoints.reading.padding import EMBEDDING, HEAD, cut
from driftscope.errors import CheckpointError

_Q, _K, _V, _O = (f"layers.0.self_attn.{p}_proj.weight" for p in "qkvo")


def resolve_widths(board: Switchboard) -> None:
    """Put hidden_size, intermediate_size, num_layers."""
    hidden = board.shape(_O)[0]
    _settle(board, "hidden_size", hidden, "hidden_size", f"rows of {_O}")
    gate = "layers.0.mlp.gate_proj.weight"
    _settle(board, "intermediate_size", board.shape(gate)[0], "intermediate_size", f"rows of {gate}")
    layers = {int(name.split(".")[1]) for name in board.infos if name.startswith("layers.")}
    if layers != set(range(len(layers))):
        raise CheckpointError(f"layers {sorted(layers)} are stored, expected 0 to {len(layers) - 1} without a gap")
    stated = board.number("num_hidden_layers")
    if stated and len(layers) == 1 and stated[0] != 1 and board.has("layers.0.hidden_norm.weight"):
        # EAGLE-3 code bases with a single fixed layer never read the key; published configs hold the target's value.
        board.warnings.append(f"config says {stated[1]} = {stated[0]}, but one layer is stored; one is run")
        stated = None
    if stated and stated[0] < len(layers):
        raise CheckpointError(f"{len(layers)} layers are stored, but the config says {stated[1]} = {stated[0]}")
    if stated and stated[0] > len(layers):
        board.problems.append(f"config says {stated[1]} = {stated[0]}, but only {len(layers)} layers are stored")
    board.put("num_layers", len(layers), "weights", "layers stored")


def resolve_heads(board: Switchboard, defaults: dict[str, int] | None = None) -> None:
    """Put num_heads, num_kv_heads, head_dim: from the config, q_norm or rotary_emb.inv_freq; else the target's head
    size where it divides both projections; else asked for.

    Args:
        defaults: what the layout's config class fills in for absent keys.
    """
    if board.has(MARK):
        resolve_latent(board)
        return
    rows_q, rows_k = board.shape(_Q)[0], board.shape(_K)[0]
    if board.shape(_V)[0] != rows_k:
        raise CheckpointError(f"k_proj has {rows_k} rows and v_proj {board.shape(_V)[0]}; they must agree")
    gated = rows_q == 2 * board.shape(_O)[1]
    gated = board.put("gated_attention", gated, "weights", "rows of q_proj over columns of o_proj")
    if gated and rows_q % 2 == 0:
        rows_q //= 2
    if board.shape(_O)[1] != rows_q:
        raise CheckpointError(f"q_proj has {rows_q} rows, but o_proj reads {board.shape(_O)[1]}; they must agree")
    size, source, detail = _head_dim(board, rows_q, rows_k, defaults or {})
    size = board.put("head_dim", size, source, detail)
    for switch, rows, name in (("num_heads", rows_q, "q_proj"), ("num_kv_heads", rows_k, "k_proj")):
        if rows % size:
            raise CheckpointError(f"{name} has {rows} rows, which head_dim {size} ({detail}) does not divide")
        key = "num_attention_heads" if switch == "num_heads" else "num_key_value_heads"
        stated = board.number(key)
        if stated and stated[0] != rows // size:
            raise CheckpointError(
                f"{name} has {rows} rows, {rows // size} heads of {size} ({detail}), but config has {key} = {stated[0]}"
            )
        if (given := board.user(switch)) is not None and given * size != rows:
            raise CheckpointError(f"--set {switch}={given}: {name} has {rows} rows, {rows // size} heads of {size}")
        board.put(switch, rows // size, *(("config", key) if stated else (source, f"{rows} rows of {name}")))
    if board.get("num_heads") % board.get("num_kv_heads"):
        raise CheckpointError(f"{rows_q // size} query heads cannot share {rows_k // size} key heads of {size}")


def _head_dim(board: Switchboard, rows_q: int, rows_k: int, defaults: dict[str, int]) -> tuple[int, Any, str]:
    if (given := board.user("head_dim")) is not None:
        return given, "user", "--set head_dim"
    if (heads := board.user("num_heads")) is not None:
        return _divide(rows_q, heads, "--set num_heads"), "user", "--set num_heads"
    norm = "layers.0.self_attn.q_norm.weight"
    stated = board.number("head_dim")
    if board.has(norm):
        size = board.shape(norm, 1)[0]
        if stated and stated[0] != size:
            raise CheckpointError(f"{norm} has {size} entries, but the config says head_dim = {stated[0]}")
        return size, "weights", norm
    if stated:
        return stated[0], "config", "head_dim"
    if heads_stated := board.number("num_attention_heads"):
        key = f"{rows_q} rows of q_proj / {heads_stated[1]}"
        return _divide(rows_q, heads_stated[0], heads_stated[1]), "config", key
    for key, divisor in (("head_dim", None), ("num_attention_heads", rows_q)):
        if value := defaults.get(key):
            size = value if divisor is None else rows_q // value
            if size and rows_q % size == 0 and rows_k % size == 0:
                return size, "default", f"{key} = {value} of the config class"
    if board.has("inv_freq"):
        return 2 * board.shape("inv_freq", 1)[0], "weights", "twice the length of rotary_emb.inv_freq"
    target = target_head_dim(board.target)
    if target and rows_q % target == 0 and rows_k % target == 0:
        board.warnings.append(f"the head size is not recorded: the target's {target} is assumed (--set head_dim=N)")
        return target, "target", "head_dim"
    raise CheckpointError(
        f"q_proj has {rows_q} rows and k_proj {rows_k}, but no config says how many heads that is: give --num-heads"
        " (or --set head_dim=N)"
    )


def _divide(rows: int, heads: int, what: str) -> int:
    if heads < 1 or rows % heads:
        raise CheckpointError(f"q_proj has {rows} rows, which {what} = {heads} does not divide")
    return rows // heads


def resolve_features(board: Switchboard) -> None:
    """Put fc, fc_bias, num_aux and target_hidden_size for a drafter that reads aux features."""
    board.put("fc", True, "weights", "fc.weight")
    board.put("fc_bias", board.has("fc.bias"), "weights", "fc.bias" if board.has("fc.bias") else "no fc.bias")
    bias = board.flag("bias")
    if bias and bias[0] and not board.get("fc_bias"):
        board.warnings.append(
            "config says bias true, but no fc.bias is stored; it runs without, SGLang with one of its own"
        )
    rows, width = board.shape("fc.weight")
    if rows != board.get("hidden_size"):
        raise CheckpointError(f"fc.weight has {rows} rows, but the drafter's width is {board.get('hidden_size')}")
    target_width, source, detail = _target_width(board, width)
    if width % target_width:
        raise CheckpointError(
            f"fc.weight reads {width} features, no multiple of the target's width {target_width} ({detail})"
        )
    stated = board.number("num_aux_hidden_states", "eagle_config.num_aux_hidden_states", "num_aux_layers")
    if stated and stated[0] * target_width != width:
        raise CheckpointError(
            f"fc.weight reads {width} features, but {stated[1]} = {stated[0]} of width {target_width} ({detail}) are"
            f" {stated[0] * target_width}"
        )
    board.put("target_hidden_size", target_width, source, detail)
    count, width_text = width // target_width, f"fc.weight reads {width} = {width // target_width} x {target_width}"
    board.put("num_aux", count, *(("config", stated[1]) if stated else ("weights", width_text)))


def _target_width(board: Switchboard, width: int) -> tuple[int, Any, str]:
    if (given := board.user("target_hidden_size")) is not None:
        return given, "user", "--set target_hidden_size"
    if stated := board.number("target_hidden_size"):
        return stated[0], "config", stated[1]
    if board.has("fc_norm.0.weight"):
        return board.shape("fc_norm.0.weight", 1)[0], "weights", "fc_norm.0.weight"
    hidden: int = board.get("hidden_size")
    if not board.has("embed_tokens.weight") and board.user("embedding") is None:
        return hidden, "weights", "no embed_tokens.weight, so the target's embedding must fit"
    stated = board.number("num_aux_hidden_states", "eagle_config.num_aux_hidden_states", "num_aux_layers")
    aux = find_aux_ids(board)
    count, key = stated or ((len(aux.ids), aux.key) if aux else (0, ""))
    chosen = board.user("aux_boundaries")
    count, key = (len(chosen), "--aux") if chosen else (count, key)
    if count:
        if width % count:
            raise CheckpointError(f"fc.weight reads {width} features, which {count} aux states ({key}) do not divide")
        return width // count, "weights", f"{width} columns of fc.weight / {count} ({key})"
    target = getattr(board.target, "hidden_size", None)
    if width == 3 * hidden:
        return hidden, "weights", "fc.weight reads 3 x hidden_size"
    if target and width % target == 0:
        return target, "target", "hidden_size"
    if width % 3 == 0:
        return width // 3, "default", f"{width} columns of fc.weight / 3 aux states"
    if width % hidden == 0:
        return hidden, "weights", f"fc.weight reads {width // hidden} x hidden_size"
    raise CheckpointError(
        f"fc.weight reads {width} features: not 3 equal parts nor a multiple of {hidden}; --set target_hidden_size=N"
    )


def resolve_biases(board: Switchboard) -> None:
    """Put attention_bias, output_bias, mlp_bias, qk_norm, learned_sinks: all follow from tensors that are there or not.
    A config that asks for a bias that is not stored is told: engines would run it with whatever they initialise."""
    first = MARK.replace("weight", "bias") if board.has(MARK) else "layers.0.self_attn.q_proj.bias"
    for switch, name in (
        ("attention_bias", first),
        ("output_bias", "layers.0.self_attn.o_proj.bias"),
        ("mlp_bias", "layers.0.mlp.gate_proj.bias"),
        ("qk_norm", "layers.0.self_attn.q_norm.weight"),
        ("learned_sinks", "layers.0.self_attn.sinks"),
    ):
        board.put(switch, board.has(name), "weights", name if board.has(name) else f"no {name}")
    for switch, key in (("attention_bias", "attention_bias"), ("mlp_bias", "mlp_bias")):
        stated = board.flag(key)
        if stated and stated[0] and not board.get(switch):
            board.warnings.append(f"config says {key} true, but no such bias is stored; it runs without")


def resolve_vocab_sizes(board: Switchboard, default_vocab: int | None = None) -> None:
    """Put vocab_size (the target's) and draft_vocab_size.

    vocab_size: t2d or embed_tokens, else the config, else the target. draft_vocab_size: lm_head, else d2t, else the
    config, else vocab_size.
    """
    width = board.get("hidden_size")
    target_size: int | None = getattr(board.target, "vocab_size", None)
    counted = next(((n, d) for n, d in (("t2d", 1), ("embed_tokens.weight", 2)) if board.has(n)), None)
    stated = board.number("vocab_size")
    if counted:
        name, dims = counted
        size = board.shape(name, dims)[0]
        if stated and stated[0] != size and not (name == EMBEDDING and cut(board, name, stated[0])):
            raise CheckpointError(f"{name} covers {size} tokens, but the config says vocab_size = {stated[0]}")
        size = stated[0] if stated else size
        board.put("vocab_size", size, *(("config", "vocab_size") if stated else ("weights", name)))
        if name != EMBEDDING and board.has(EMBEDDING):
            cut(board, EMBEDDING, size)
    elif stated:
        board.put("vocab_size", stated[0], "config", "vocab_size")
    elif target_size is not None:
        board.put("vocab_size", target_size, "target", "vocab_size")
    elif default_vocab is not None:
        board.put("vocab_size", default_vocab, "default", "vocab_size of the config class")
    elif board.has("lm_head.weight") and not board.has("d2t"):
        board.put("vocab_size", board.shape("lm_head.weight")[0], "weights", "rows of lm_head.weight")
    elif board.user("vocab_size") is None:
        raise CheckpointError("the target's vocabulary size is not recorded: give --target, or --set vocab_size=N")
    if board.has("embed_tokens.weight") and board.shape("embed_tokens.weight")[1] != width:
        raise CheckpointError(
            f"embed_tokens.weight is {board.shape('embed_tokens.weight')[1]} wide, but the drafter's width is {width}"
        )
    _resolve_draft_size(board, width)


def _resolve_draft_size(board: Switchboard, width: int) -> None:
    stated = board.number("draft_vocab_size", "truncated_vocab_size")
    if board.has("lm_head.weight"):
        rows, columns = board.shape("lm_head.weight")
        if columns != width:
            raise CheckpointError(f"lm_head.weight is {columns} wide, but the drafter's width is {width}")
        tokens = stated[0] if stated else board.shape("d2t", 1)[0] if board.has("d2t") else board.get("vocab_size")
        if cut(board, HEAD, tokens):
            rows = tokens
        if stated and stated[0] != rows:
            raise CheckpointError(f"lm_head.weight has {rows} rows, but the config says {stated[1]} = {stated[0]}")
        board.put("draft_vocab_size", rows, *(("config", stated[1]) if stated else ("weights", "lm_head.weight")))
    elif board.has("d2t"):
        board.put("draft_vocab_size", board.shape("d2t", 1)[0], "weights", "length of d2t")
    elif stated:
        board.put("draft_vocab_size", stated[0], "config", stated[1])
    else:
        board.put("draft_vocab_size", board.get("vocab_size"), "default", "as vocab_size")


def _settle(board: Switchboard, switch: str, counted: int, key: str, where: str) -> None:
    stated = board.number(key)
    if stated and stated[0] != counted:
        raise CheckpointError(f"{where}: {counted}, but the config says {stated[1]} = {stated[0]}")
    board.put(switch, counted, *(("config", stated[1]) if stated else ("weights", where)))


def target_head_dim(target: Any | None) -> int | None:
    """Head size of a target's text config, spelled out or hidden_size / num_attention_heads."""
    size = getattr(target, "head_dim", None)
    if isinstance(size, int) and size > 0:
        return size
    hidden, heads = getattr(target, "hidden_size", None), getattr(target, "num_attention_heads", None)
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else None


def expected_shapes(config: DrafterConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name -> shape of every tensor that a drafter with these switches applies."""
    c, hidden = config, config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {}
    features = c.num_aux * c.target_hidden_size
    if c.fc:
        inputs = features if c.fuses and c.feature_source == "aux" else hidden + c.target_hidden_size
        shapes["fc.weight"] = (hidden, inputs)
        if c.fc_bias:
            shapes["fc.bias"] = (hidden,)
    if c.input_norm:
        shapes["input_norm.weight"] = (features,)
    if c.fc_norm:
        shapes |= {f"fc_norm.{i}.weight": (c.target_hidden_size,) for i in range(c.num_aux)}
    if c.embedding == "own":
        shapes["embed_tokens.weight"] = (c.vocab_size, hidden)
    if c.fc_mlp:
        inner = c.intermediate_size
        shapes |= {f"fc_mlp.{name}.weight": (hidden,) for name in ("outer_norm", "norm")}
        shapes |= {"fc_mlp.up_proj.weight": (inner, 2 * hidden), "fc_mlp.down_proj.weight": (hidden, inner)}
    if c.in_blocks:
        shapes["hidden_norm.weight"] = (hidden,)
    elif not c.carries:
        shapes["mask_hidden"] = (1, 1, features)
    if c.layer_form == "mtp":
        shapes |= {"enorm.weight": (hidden,), "hnorm.weight": (hidden,)}
    for j in range(c.num_layers):
        layer = layer_shapes(c.layer_config) if c.layer_config is not None else _layer_shapes(c, j)
        shapes |= {f"layers.{j}.{name}": shape for name, shape in layer.items()}
    if c.final_norm or c.carry == "post":
        shapes["norm.weight"] = (hidden,)
    if c.head == "own":
        shapes["lm_head.weight"] = (c.draft_vocab_size, hidden)
    if c.vocab_map != "none":
        shapes["d2t"] = (c.draft_vocab_size,)
    return shapes


def _layer_shapes(c: DrafterConfig, index: int) -> dict[str, tuple[int, ...]]:
    hidden, inner, first = c.hidden_size, c.intermediate_size, index == 0
    doubled = first and c.layer_form == "eagle3"
    out = 2 * hidden if c.wide_output and index == c.num_layers - 1 else hidden
    shapes: dict[str, tuple[int, ...]] = {"post_attention_layernorm.weight": (hidden,)}
    if not first:
        shapes[f"{c.later_layer_norm}.weight"] = (hidden,)
    elif c.layer_form != "eagle1":
        shapes["input_layernorm.weight"] = (hidden,)
    if doubled and c.state_norm:
        shapes["hidden_norm.weight"] = (hidden,)
    attention = _plain_shapes if c.kv_lora_rank is None else _latent_shapes
    shapes |= {f"self_attn.{name}": shape for name, shape in attention(c, 2 * hidden if doubled else hidden).items()}
    if c.output_bias:
        shapes["self_attn.o_proj.bias"] = (hidden,)
    if c.learned_sinks:
        shapes["self_attn.sinks"] = (c.num_heads,)
    for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (out, inner))):
        shapes[f"mlp.{part}_proj.weight"] = shape
        if c.mlp_bias:
            shapes[f"mlp.{part}_proj.bias"] = shape[:1]
    return shapes


def _plain_shapes(c: DrafterConfig, reads: int) -> dict[str, tuple[int, ...]]:
    rows = c.num_heads * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {"o_proj.weight": (c.hidden_size, rows)}
    for part, size in (("q", rows * (1 + c.gated_attention)), ("k", c.num_kv_heads * c.head_dim),
                       ("v", c.num_kv_heads * c.head_dim)):  # fmt: skip
        shapes[f"{part}_proj.weight"] = (size, reads)
        if c.attention_bias:
            shapes[f"{part}_proj.bias"] = (size,)
    if c.qk_norm:
        shapes |= {f"{part}_norm.weight": (c.head_dim,) for part in "qk"}
    return shapes


def _latent_shapes(c: DrafterConfig, reads: int) -> dict[str, tuple[int, ...]]:
    assert c.kv_lora_rank is not None
    assert c.qk_rope_head_dim is not None
    rope, rank, value = c.qk_rope_head_dim, c.kv_lora_rank, c.v_head_dim or c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "kv_a_proj_with_mqa.weight": (rank + rope, reads),
        "kv_a_layernorm.weight": (rank,),
        "kv_b_proj.weight": (c.num_heads * (c.head_dim - rope + value), rank),
        "o_proj.weight": (c.hidden_size, c.num_heads * value),
    }
    query: dict[str, tuple[int, ...]] = {"q_proj.weight": (c.num_heads * c.head_dim, reads)}
    if c.q_lora_rank is not None:
        query = {"q_a_proj.weight": (c.q_lora_rank, reads), "q_a_layernorm.weight": (c.q_lora_rank,)}
        query["q_b_proj.weight"] = (c.num_heads * c.head_dim, c.q_lora_rank)
    if c.attention_bias:
        shapes["kv_a_proj_with_mqa.bias"] = (rank + rope,)
        query |= {} if c.q_lora_rank is None else {"q_a_proj.bias": (c.q_lora_rank,)}
    return shapes | query
