"""Every published layout in tiny: the cases that the tests go through and that the table of docs/formats.md is made of.

python -m tests.checkpoints.layouts        # rewrite the table
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driftscope.checkpoints import DrafterConfig, Rope, open_checkpoint, save_checkpoint
from driftscope.checkpoints.families.experts import split
from driftscope.checkpoints.sizes import expected_shapes
from tests.heads import HEADS

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"
MARKS = ("<!-- table of layouts: made by tests/checkpoints/layouts.py -->", "<!-- end of table -->")
LAYERS = 10

PLAIN = DrafterConfig(
    hidden_size=16,
    target_hidden_size=16,
    intermediate_size=12,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=40,
    draft_vocab_size=10,
    aux_boundaries=(2, 4, 8),
    head="own",
    vocab_map="offset",
    rms_norm_eps=1e-5,
    rope=Rope(theta=5e5, max_position=512),
)
EAGLE1 = dataclasses.replace(
    PLAIN,
    layer_form="eagle1",
    feature_source="final",
    num_aux=1,
    aux_boundaries=None,
    draft_vocab_size=40,
    vocab_map="none",
    head="target",
    embedding="own",
    state_norm=False,
    final_norm=False,
)
GRIFFIN = dataclasses.replace(EAGLE1, fc_mlp=True, wide_output=True, carry="second", fc_bias=True)
LATENT = {
    "num_heads": 4, "num_kv_heads": 4, "head_dim": 10, "q_lora_rank": 14, "kv_lora_rank": 9, "qk_rope_head_dim": 4,
    "v_head_dim": 5, "rope": Rope(theta=5e4, layout="interleaved", max_position=512),
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}

# What an EAGLE-3 checkpoint may differ in, by the word that the table uses.
VARIANTS: dict[str, dict[str, Any]] = {
    "EAGLE-3": {},
    "post-norm carry": {"carry": "post"},
    "fc_norm": {"fc_norm": True},
    "EAGLE 3.1": {"fc_norm": True, "carry": "post"},
    "norm_before_fc": {"input_norm": True},
    "norm_before_residual": {"residual": "normed"},
    "2 aux features": {"num_aux": 2, "aux_boundaries": (3, 10)},
    "5 aux features": {"num_aux": 5, "aux_boundaries": (1, 3, 5, 7, 9)},
    "other target width": {"target_hidden_size": 12, "embedding": "own"},
    "whole vocabulary": {"draft_vocab_size": 40, "vocab_map": "none"},
    "own embedding": {"embedding": "own"},
    "biases": {"attention_bias": True, "output_bias": True, "mlp_bias": True, "fc_bias": True},
    "scaled rope": {"rope": Rope(theta=5e5, scaling=LLAMA3, max_position=512)},
    "window": {"sliding_window": (64,)},
    "2 layers": {"num_layers": 2},
    "2 layers, hidden_norm": {"num_layers": 2, "later_layer_norm": "hidden_norm"},
    "q/k norms": {"qk_norm": True},
    "latent attention": LATENT,
    "latent attention, plain q": LATENT | {"q_lora_rank": None},
    "learned sinks": {"learned_sinks": True},
    "gated attention": {"gated_attention": True},
    "no aux features": {
        "feature_source": "final", "num_aux": 1, "fc": False, "aux_boundaries": None, "state_norm": True,
    },
    "P-EAGLE": {"carry": "none", "mask_token_id": 3},
    "P-EAGLE, fc_norm, 2 layers": {"carry": "none", "mask_token_id": 3, "fc_norm": True, "num_layers": 2},
}  # fmt: skip
_SEVERAL_LAYERS = ("2 layers", "2 layers, hidden_norm")
_LATENT = ("latent attention", "latent attention, plain q")
_PARALLEL = ("P-EAGLE", "P-EAGLE, fc_norm, 2 layers")
_FIRST_VARIANTS = tuple(
    name for name in VARIANTS if name not in (*_SEVERAL_LAYERS, *_LATENT, *_PARALLEL, "q/k norms", "no aux features")
)
EAGLE1_VARIANTS: dict[str, dict[str, Any]] = {
    "EAGLE-1/2": {},
    "fc bias": {"fc_bias": True},
    "q, k, v biases": {"attention_bias": True},
    "2 layers": {"num_layers": 2},
    "target's embedding": {"embedding": "target"},
    "own head": {"head": "own"},
}
GRIFFIN_VARIANTS: dict[str, dict[str, Any]] = {
    "GRIFFIN": {},
    "no fc bias": {"fc_bias": False},
    "q, k, v biases": {"attention_bias": True},
    "target's embedding": {"embedding": "target"},
}
DFLASH = dataclasses.replace(
    PLAIN, layer_form="dflash", carry="none", block_size=6, mask_token_id=3, qk_norm=True, num_layers=2
)
_TARGETS_OWN = {"draft_vocab_size": 40, "vocab_map": "none", "head": "target"}
DFLASH_VARIANTS: dict[str, dict[str, Any]] = {
    "DFlash": _TARGETS_OWN,
    "reduced vocabulary": {},
    "one layer, no q/k norms": _TARGETS_OWN | {"num_layers": 1, "qk_norm": False},
    "window": _TARGETS_OWN | {"sliding_window": (64, None)},
    "window that looks ahead": _TARGETS_OWN | {"sliding_window": (64, None), "block_causal": "none"},
    "sample_from_anchor": _TARGETS_OWN | {"sample_from_anchor": True},
    "biases": _TARGETS_OWN | {"attention_bias": True, "output_bias": True},
    "5 aux features": _TARGETS_OWN | {"num_aux": 5, "aux_boundaries": (1, 3, 5, 7, 9)},
    "causal block": _TARGETS_OWN | {"block_causal": "all"},
}


@dataclass(frozen=True)
class Layout:
    """A row of the table."""

    name: str
    written_by: str
    ids: str
    variants: tuple[str, ...]

    def config(self, variant: str) -> DrafterConfig:
        if self.name == "eagle1":
            return dataclasses.replace(EAGLE1, **EAGLE1_VARIANTS[variant])
        if self.name == "griffin":
            return dataclasses.replace(GRIFFIN, **GRIFFIN_VARIANTS[variant])
        if self.name.endswith("dflash"):
            return dataclasses.replace(DFLASH, **DFLASH_VARIANTS[variant])
        if self.name.endswith("-mtp"):
            return HEADS[variant].config()
        return dataclasses.replace(PLAIN, **VARIANTS[variant])


_NESTED = "`eagle_config.eagle_aux_hidden_state_layer_ids`, layer outputs"
_TOP = "`eagle_aux_hidden_state_layer_ids`, boundaries"
_LAST = "none: the last hidden state"


def _heads(layout: str) -> tuple[str, ...]:
    return tuple(name for name, head in HEADS.items() if head.layout == layout)


LAYOUTS: tuple[Layout, ...] = (
    Layout("safeailab", "SafeAILab/EAGLE", "none; " + _TOP, _FIRST_VARIANTS),
    Layout("specforge", "SpecForge", _NESTED, _FIRST_VARIANTS),
    Layout("angelslim", "AngelSlim", "`aux_hidden_states_layer_ids`, layer outputs", _FIRST_VARIANTS),
    Layout("torchspec", "TorchSpec", _NESTED, (*_FIRST_VARIANTS, *_LATENT)),
    Layout("modelopt", "NVIDIA ModelOpt", _NESTED, (*_FIRST_VARIANTS, *_LATENT, *_SEVERAL_LAYERS, "no aux features")),
    Layout("automodel", "NeMo Automodel", _NESTED, (*_FIRST_VARIANTS, *_SEVERAL_LAYERS, *_PARALLEL)),
    Layout("vllm", "exports for vLLM and SGLang", _TOP, tuple(VARIANTS)),
    Layout(
        "speculators", "speculators", _TOP, tuple(n for n in VARIANTS if n not in ("no aux features", *_LATENT))
    ),
    Layout("eagle1", "EAGLE-1, EAGLE-2, HASS", _LAST, tuple(EAGLE1_VARIANTS)),
    Layout("griffin", "GRIFFIN", _LAST, tuple(GRIFFIN_VARIANTS)),
    Layout("deepseek-mtp", "DeepSeek and GLM, in the target or alone", _LAST, _heads("deepseek-mtp")),
    Layout("qwen-mtp", "Qwen3-Next, Qwen3.5, in the target", _LAST, _heads("qwen-mtp")),
    Layout("mimo-mtp", "MiMo-7B, in the target", _LAST, _heads("mimo-mtp")),
    Layout("speculators-mtp", "speculators, MTP", _LAST, _heads("speculators-mtp")),
    Layout("dflash", "z-lab, DFlash", "`dflash_config.target_layer_ids`, layer outputs", tuple(DFLASH_VARIANTS)),
    Layout(
        "speculators-dflash", "speculators, DFlash", "`aux_hidden_state_layer_ids`, boundaries",
        tuple(n for n in DFLASH_VARIANTS if n != "causal block"),
    ),
)  # fmt: skip
CASES = [(layout, variant) for layout in LAYOUTS for variant in layout.variants]
IDS = [f"{layout.name}: {variant}" for layout, variant in CASES]


def weights(config: DrafterConfig, seed: int = 0) -> dict[str, Tensor]:
    """Random weights under canonical names, norms about one, with d2t and t2d where the vocabulary is reduced."""
    generator = torch.Generator().manual_seed(seed)
    made = {
        name: torch.randn(shape, generator=generator) if len(shape) > 1 else 1 + torch.rand(shape, generator=generator)
        for name, shape in expected_shapes(config).items()
    }
    if config.vocab_map != "none":
        ids = torch.randperm(config.vocab_size, generator=generator)[: config.draft_vocab_size].sort().values
        made["d2t"] = ids - torch.arange(len(ids))
        made["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    return made


def stored(config: DrafterConfig = PLAIN, layout: str = "specforge", seed: int = 0) -> tuple[dict[str, Tensor], Any]:
    """(tensors by stored name, config.json) of a checkpoint."""
    from driftscope.checkpoints.families.registry import FAMILIES

    family = next(family for family in FAMILIES if layout == family.NAME)
    return {family.stored_name(n): t for n, t in split(weights(config, seed)).items()}, family.config_json(config)


def table() -> str:
    """The table, each row from a checkpoint that was just written and opened."""
    rows = ["| layout | written by | recognised by | layer 0 | aux ids |", "|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for layout in LAYOUTS:
            config = layout.config(layout.variants[0])
            opened = open_checkpoint(save_checkpoint(Path(folder) / layout.name, config, weights(config), layout.name))
            layer = opened.names["layers.0.post_attention_layernorm.weight"].removesuffix(
                "post_attention_layernorm.weight"
            )
            cells = (f"`{opened.layout}`", layout.written_by, opened.reason, f"`{layer}*`", layout.ids)
            rows.append(f"| {' | '.join(cells)} |")
    plain = [layout for layout in LAYOUTS if layout.variants[0] == "EAGLE-3"]
    names = [layout.name for layout in plain]
    rows += ["", f"| written and read back equal | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for variant in VARIANTS:
        held = ["yes" if variant in layout.variants else "" for layout in plain]
        rows.append(f"| {variant} | {' | '.join(held)} |")
    for layout in LAYOUTS:
        if layout not in plain:
            rows += ["", f"`{layout.name}` likewise: {', '.join(layout.variants)}."]
    return "\n".join(row.rstrip() for row in rows)


def page_with(made: str) -> str:
    """docs/formats.md with the table put between its marks."""
    start, end = (re.escape(mark) for mark in MARKS)
    body = f"{MARKS[0]}\n{made}\n{MARKS[1]}"
    text, count = re.subn(f"{start}.*?{end}", lambda _: body, PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 1, f"{PAGE} must hold the two marks once"
    return text


if __name__ == "__main__":
    PAGE.write_text(page_with(table()), encoding="utf-8")
