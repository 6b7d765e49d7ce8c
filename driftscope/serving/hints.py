"""Where an engine takes a switch from, as its user can change it. Facts as of vLLM 0.32 and SGLang 0.5."""

from __future__ import annotations

from collections.abc import Mapping

from driftscope.from_engines.counters.model import NAMES, Engine

_CONFIG = "in the drafter's config.json"
_BOTH: Mapping[str, str] = {
    "carry": f"norm_output {_CONFIG}, at the top level (true: after the norm)",
    "norms before fc": f"fc_norm and norm_before_fc {_CONFIG}, and the tensors fc_norm.* beside them",
    "rope.theta": f"rope_theta {_CONFIG}; what is not written there is 10000",
    "rope.scaling": f"rope_scaling {_CONFIG}",
    "vocab_map": "d2t among the drafter's tensors, as offsets: target id minus draft id",
    "residual": f"norm_before_residual {_CONFIG}",
    "head": f"draft_vocab_size and tie_word_embeddings {_CONFIG}, and lm_head.weight among the tensors",
    "embedding": "embed_tokens.weight among the drafter's tensors",
    "head_dim": f"head_dim and num_attention_heads {_CONFIG}",
    "rms_norm_eps": f"rms_norm_eps {_CONFIG}",
    "sliding_window": f"sliding_window {_CONFIG}",
    "position_increment": "the positions that the engine gives to the drafting steps",
    "draft_kv": "the draft KV between the steps of a round: no config says it, the engine's code for the drafter does",
    "feature_shift": "which row's features the engine hands to the drafter",
    "token_shift": "which token the engine embeds beside a row of features",
}
_OWN: Mapping[Engine, Mapping[str, str]] = {
    "vllm": {
        "aux_boundaries": f"eagle_aux_hidden_state_layer_ids {_CONFIG}, at the top level: boundaries, that is layer inputs",
    },
    "sglang": {
        "aux_boundaries": f"eagle_config.eagle_aux_hidden_state_layer_ids {_CONFIG}: layer outputs, that is boundaries minus 1",
        "vocab_map": "d2t among the drafter's tensors; --speculative-token-map is for EAGLE-2 alone",
    },
    "": {
        "aux_boundaries": f"eagle_aux_hidden_state_layer_ids {_CONFIG} (vLLM: boundaries at the top; SGLang: layer outputs in"
        " eagle_config)",
    },
}
_START: Mapping[Engine, str] = {
    "vllm": '--speculative-config \'{"model": DRAFTER, "method": "eagle3", "num_speculative_tokens": K}\'',
    "sglang": "--speculative-draft-model-path DRAFTER --speculative-algorithm EAGLE3 --speculative-num-steps K"
    " --speculative-eagle-topk 1",
    "": "",
}


def where_to_look(engine: Engine, switch: str) -> str:
    """Where the engine has it from; empty for a switch that nobody sets."""
    return _OWN[engine].get(switch) or _BOTH.get(switch, "")


def started_with(engine: Engine) -> str:
    """The flags that choose a drafter, to check first; empty where the engine is not known."""
    return f"{NAMES[engine]} was started with {_START[engine]}?" if engine else ""


FIRST = (
    "position 1 is lower already: what the drafter is given is not what it was trained on. Look at the features"
    " (which layers of the"
    " target), the norms before fc, the vocabulary map, the embedding and the rotary embedding, in this order"
)
LATER = (
    "position 1 is right and later ones are not: the first step gets what it was trained on, the steps behind"
    " it do not. Look at the"
    " carried state (before or after the norm), at the positions of the steps, and at the keys and values of drafted rows"
)
UNPLACED = (
    "the engine counts no positions, so nothing tells the first step from later ones: counts by position (vLLM's /metrics, SGLang's"
    " spec_accept_histogram in meta_info) would"
)
EASIER = (
    "easier texts, texts that loop, another target, or a run that reads the checkpoint otherwise than the engine: probe with the"
    " prompts that the server answers"
)
