"""What is recognised and not opened, each with its reason: not every drafter hands a state from step to step."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from driftscope.checkpoints.reading import names
from driftscope.checkpoints.reading.files import Source
from driftscope.errors import CheckpointError

_NO_CARRY = "it hands no state from step to step, so there is no chain to probe"
_QUANTISED = (
    "quantised weights of a kind that is not read here (FP8 and the integers of compressed-tensors are); export the"
    " drafter unquantised"
)
_OTHER_BLOCKS = "of the block drafters DFlash and P-EAGLE are read"
# (pattern that a tensor name must hold, what it is). The first that any name matches decides.
_BY_TENSOR: tuple[tuple[str, str], ...] = (
    (r"lora_[AB]\.|lora_embedding_[AB]", "a LoRA adapter; merge it into its model and open that"),
    (r"(^|\.)medusa_heads?\.|^\d+\.\d+\.linear\.(weight|bias)$", f"Medusa heads: {_NO_CARRY}"),
    (r"(^|\.)hydra_(heads?|mlp|lm_head)", f"Hydra heads, which read tokens, not a carried state: {_NO_CARRY}"),
    (r"^(speculator\.)?(emb|proj|head)\.0\.weight$", "an MLP speculator, which has no attention to look at"),
    (r"\.(qweight|qzeros)$", f"GPTQ or AWQ, {_QUANTISED}"),
    (r"\.(absmax|SCB)$|\.weight\.(absmax|quant_state|quant_map|nested_)", f"bitsandbytes, {_QUANTISED}"),
    (r"\.weight_(scale_2|global_scale)$", f"NVFP4, {_QUANTISED}"),
    (r"_proj_(blocks|scales)$", f"MXFP4, {_QUANTISED}"),
    (r"\.(weight_packed|compressed|bitmask|meta_idx)$|\.scales$", f"packed or sparse, {_QUANTISED}"),
    (r"self_attn\.(qkv_proj|fused_qkv_a_proj)", "fused q, k and v, as engines hold them; export the drafter unfused"),
    (r"(^|\.)(markov|dspark)_", f"a block drafter with a Markov chain over its logits: {_OTHER_BLOCKS}"),
    (r"(^|\.)(attention_conv|mlp_conv|candidate_selector)\.", f"a DFlash2 drafter: {_OTHER_BLOCKS}"),
)  # fmt: skip
_VARIANTS: tuple[tuple[str, str], ...] = (
    (r"mlp\.(experts\.|gate\.weight|router\.)", "a drafter with experts (MoE), whose layer is not read here"),
    (r"(^|\.)(embedding_layernorm|hidden_states_layernorm|hidden_layernorm|pre_lm_head_layernorm|input_norm[12]|enorm"
     r"|hnorm)\.", "an EAGLE-1 variant with norms around fc, which is not read here"),
)  # fmt: skip
_BY_ARCHITECTURE: tuple[tuple[str, str], ...] = (
    (r"DFlash2|DSpark|Domino|JetSpec", f"a block drafter of another kind: {_OTHER_BLOCKS}"),
    (r"Medusa", f"Medusa heads: {_NO_CARRY}"),
    (r"MLPSpeculator", "an MLP speculator, which has no attention to look at"),
)
# What the MTP layouts are recognised by, and what only other MTP heads hold.
_MTP = re.compile(
    r"^(?:layers\.\d+|decoder)\.(?:eh_proj|hnorm|shared_head\.norm)\.weight$|^eh_proj\.weight$"
    r"|^mtp\.pre_fc_norm_(?:hidden|embedding)\.|^mtp_layers\.\d+\.(?:token|hidden)_layernorm\."
)
_OTHER_MTP = re.compile(r"(^|\.)(eh_proj|mtp|mtp_layers|mtp_block|mtp_linear_proj)\b")
_SPECULATORS = ("eagle3", "eagle", "mtp", "peagle", "dflash")


def check(source: Source) -> None:
    """Raise for a checkpoint that is known and not opened.

    Raises:
        CheckpointError: names what it is and why it is not read.
    """
    reason = refusal(source.infos, source.config, source.folder_files)
    if reason:
        raise CheckpointError(f"{source.path}: {reason}")


def refusal(stored: Collection[str], raw: Mapping[str, Any], folder: Collection[str] = ()) -> str | None:
    """What a checkpoint is and why it is not opened, or None."""
    for pattern, what in _BY_TENSOR:
        if found := next((name for name in stored if re.search(pattern, name)), None):
            return f"{what} (tensor {found})"
    if "adapter_config.json" in folder and not any("fc.weight" in name for name in stored):
        return "a LoRA adapter (adapter_config.json beside it); merge it into its model and open that"
    kind = raw.get("speculators_model_type")
    if kind is not None and kind not in _SPECULATORS:
        return f"a speculators model of type {kind!r}; of this format {', '.join(_SPECULATORS)} are read"
    nested = raw.get("eagle_config")
    nested = nested if isinstance(nested, Mapping) else {}
    parallel = nested.get("parallel_draft_step")
    masked = bool({"mask_hidden", "hidden_norm.weight"} & names.unwrap(stored)[0].keys())
    if not masked and (raw.get("parallel_drafting") or (isinstance(parallel, int) and parallel > 1)):
        return "drafts several steps in one pass (parallel drafting), but not as P-EAGLE: no mask_hidden is stored"
    if "pard_token" in raw and not masked:
        return f"a PARD drafter, an ordinary language model: {_NO_CARRY}"
    for name in raw.get("architectures") or ():
        for pattern, what in _BY_ARCHITECTURE:
            if re.search(pattern, str(name)):
                return f"{what} (architecture {name})"
    return _shape_of_model(stored)


def _shape_of_model(stored: Collection[str]) -> str | None:
    bare = names.unwrap(stored)[0]
    heads = [name for name in bare if _MTP.search(name)]
    several = [name for name in bare if name.startswith("mtp.layers.1.")]
    places = {match[1]: name for name in heads if (match := re.match(r"(?:mtp_)?layers\.(\d+)\.", name))}
    several += [places[place] for place in sorted(places, key=int)][1:]
    if heads and several:
        return (
            f"several MTP heads, one a step, where one is read that every step runs again (tensor {bare[several[0]]})"
        )
    if heads:
        return None
    if other := next((name for name in bare if _OTHER_MTP.search(name)), None):
        return f"an MTP head, but not of the form of DeepSeek, Qwen or MiMo; not read here (tensor {bare[other]})"
    combines = {"fc.weight", "fusion_fc.weight", "fc.fc.weight"} & bare.keys()
    if not combines and not any("hidden_norm" in name for name in bare):
        layers = {match[1] for name in bare if (match := re.search(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.", name))}
        heads = [name for name in bare if name.startswith(("midlayer.", "d2t", "t2d"))]
        if len(layers) > 1 and not heads:
            return f"a full language model of {len(layers)} layers, not a drafter; is it the target?"
    for pattern, what in _VARIANTS:
        if found := next((name for name in bare if re.search(pattern, name)), None):
            return f"{what} (tensor {bare[found]})"
    layered = any(name.startswith(("layers.", "midlayer.")) for name in bare)
    if layered and "embed_tokens.weight" in bare and "norm.weight" in bare and not _drafts(bare):
        return "an ordinary language model of one layer, not an EAGLE drafter: no fc, no hidden_norm, no vocabulary map"
    return None


def _drafts(bare: Collection[str]) -> bool:
    return any(name.startswith(("fc.", "fusion_fc.", "d2t", "t2d")) or "hidden_norm" in name for name in bare)
