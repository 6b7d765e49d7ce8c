"""A target: a Hugging Face causal language model, with the places in it that driftscope reads."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, ModuleList

from driftscope.errors import TargetError
from driftscope.target.locate import check_head, find_layers, first_line, forward, scale_logits
from driftscope.target.placement import execution_device, resolve_device, weight_of

_VOLATILE_CONFIG = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache")
_SAMPLES_PER_TENSOR = 4096


@dataclass(eq=False)
class Target:
    """The verified model.

    Boundary b is the residual stream after b of its `num_layers` layers: 0 the embeddings, `num_layers` the input of
    `final_norm`.
    """

    name: str
    """Folder or hub name it was loaded by."""
    model: Any
    """The transformers model, in eval mode and without gradients."""
    tokenizer: Any
    layers: ModuleList
    final_norm: Module
    num_layers: int
    hidden_size: int
    vocab_size: int
    device: torch.device
    """Where token ids go in; with a device map other parts may lie elsewhere."""
    dtype: torch.dtype
    eos_ids: frozenset[int] = frozenset()
    """Tokens that end the text: those of the generation config, the config and the tokenizer."""
    logit_scale: float = 1.0
    """Factor on the LM head's output (Cohere, Granite and others)."""
    logit_softcap: float | None = None
    """Cap c of the final logits, c tanh(logits / c) (Gemma 2 and others)."""
    _fingerprint: str | None = field(default=None, repr=False)

    @property
    def text_config(self) -> Any:
        """The config of the language model, also inside a multimodal one."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def max_positions(self) -> int | None:
        """Longest text the config allows, in tokens."""
        return getattr(self.text_config, "max_position_embeddings", None)

    @property
    def embedding_weight(self) -> Float[Tensor, "V H"]:
        """Input embeddings; a model may scale them after the lookup. A copy on the CPU where they are offloaded."""
        return weight_of(self.model.get_input_embeddings())

    @property
    def head_weight(self) -> Float[Tensor, "V H"]:
        """The LM head's weight. A copy on the CPU where it is offloaded."""
        return weight_of(self.model.get_output_embeddings())

    def head(self, hidden: Float[Tensor, "... H"]) -> Float[Tensor, "... V"]:
        """Logits of post-final-norm states, scaled and capped as the model does.

        The result lies on the LM head's device, in its dtype.
        """
        head = self.model.get_output_embeddings()
        with torch.no_grad():
            logits = head(hidden.to(device=execution_device(head), dtype=head.weight.dtype))
            return scale_logits(logits, self.logit_scale, self.logit_softcap)

    @cached_property
    def nn(self) -> Any:
        """The model wrapped by nnsight, for traces."""
        from nnsight import NNsight

        place = self.device

        class Envelope(NNsight):
            """Inputs go where the model computes: nnsight asks the first weight, which lies nowhere once offloaded."""

            @property
            def device(self) -> torch.device:
                return place

        return Envelope(self.model)

    @cached_property
    def paths(self) -> dict[Module, str]:
        """Dotted name of each module of `model`."""
        return {module: name for name, module in self.model.named_modules()}

    def forward(self, token_ids: Int[Tensor, "B T"], **kwargs: Any) -> Any:
        """The model's own output, without KV cache or gradients."""
        return forward(self.model, token_ids, **kwargs)

    def accepts(self, argument: str) -> bool:
        """Whether the model's forward names this argument."""
        return argument in inspect.signature(self.model.forward).parameters

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the config and of up to 4096 values of every weight: the same for the same model anywhere.

        It is cheap, so an edit of a few values of a large weight can go unseen.
        """
        if self._fingerprint is None:
            self._fingerprint = _fingerprint(self.model)
        return self._fingerprint


def load_target(
    name: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: Literal["auto"] | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    device_map: Any = None,
) -> Target:
    """Load a folder, a hub name or a GGUF file as a target; what is in a GGUF file is dequantised.

    `device` "auto" is CUDA where there is one, else the CPU; `dtype` "auto" is float32 on a CPU and the checkpoint's
    own on an accelerator. With `device_map` (as in transformers) `device` is not used. Raises TargetError when there is
    no such model, it is not a causal language model, weights or tokenizer are missing, or its logits do not follow from
    its final hidden state.
    """
    name = str(name)
    folder = Path(name).expanduser()
    source = name
    gguf: dict[str, str] = {}
    if folder.is_file():
        if folder.suffix != ".gguf":
            raise TargetError(f"target {name}: a file; expected a Hugging Face model folder or a .gguf file (--target)")
        source, gguf = str(folder.parent), {"gguf_file": folder.name}
    elif folder.exists():
        name = source = str(folder)
        if not (folder / "config.json").is_file():
            raise TargetError(f"target {name}: no config.json in it; expected a Hugging Face model folder (--target)")
    elif folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise TargetError(f"target {name}: no such folder (--target)")
    place = resolve_device(device)
    common = {"revision": revision, "trust_remote_code": trust_remote_code, **gguf}
    if dtype == "auto" and device_map is None and place.type == "cpu":
        dtype = torch.float32
    config, tokenizer = _load_config_and_tokenizer(source, common, name)
    auto = _auto_class(config)
    if auto is None:
        raise TargetError(f"target {name}: {config.model_type} is not a causal language model (--target)")
    options = {**common, "config": config, "dtype": dtype, "device_map": device_map, "output_loading_info": True}
    if gguf:
        from transformers import GgufConfig

        options["quantization_config"] = GgufConfig(dequantize=True)
    try:
        model, info = auto.from_pretrained(source, **options)
        if device_map is None:
            model = model.to(place)
    except Exception as error:
        raise TargetError(f"target {name}: cannot load the model: {first_line(error)}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise TargetError(f"target {name}: {len(missing)} weights are missing, the first is {missing[0]} (--target)")
    return wrap_target(model, tokenizer, name=name)


def target_config(name: str | Path, trust_remote_code: bool = False) -> Any | None:
    """The config of a local target without its weights; None where there is none to be had so (`load_target` says why)."""
    from transformers import AutoConfig

    folder = Path(name).expanduser()
    if not (folder / "config.json").is_file():
        # A Hub that cannot be reached takes its time to fail: it is asked once, by load_target.
        return None
    try:
        return AutoConfig.from_pretrained(str(folder), trust_remote_code=trust_remote_code)
    except Exception:
        # transformers raises nearly everything here.
        return None


def _auto_class(config: Any) -> Any:
    """The transformers class that loads models of this config with an LM head, or None."""
    import transformers

    own = getattr(config, "auto_map", None) or {}
    for auto, mapping in (
        (transformers.AutoModelForCausalLM, transformers.MODEL_FOR_CAUSAL_LM_MAPPING),
        (transformers.AutoModelForImageTextToText, transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING),
    ):
        if type(config) in mapping or auto.__name__ in own:
            return auto
    return None


def _load_config_and_tokenizer(source: str, options: dict[str, Any], name: str | None = None) -> tuple[Any, Any]:
    """The config first: where the Hub cannot be reached, the first request takes its time to fail."""
    from transformers import AutoConfig, AutoTokenizer

    # transformers raises nearly everything here, from OSError to KeyError.
    what, name = "config", name or source
    try:
        config = AutoConfig.from_pretrained(source, **options)
        what = "tokenizer"
        return config, AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise TargetError(
                f"target {name}: it brings code of its own to run; load it with trust_remote_code"
            ) from error
        raise TargetError(f"target {name}: cannot load its {what}: {first_line(error)}") from error


def wrap_target(model: Any, tokenizer: Any, *, name: str) -> Target:
    """A Target around a transformers causal language model that is already in memory.

    The model is put in eval mode with gradients off. A short forward finds the final norm and checks that the LM head
    on its output gives the model's logits; raises TargetError where it does not.
    """
    config = model.config.get_text_config(decoder=True)
    if getattr(model.config, "is_encoder_decoder", False):
        raise TargetError(f"target {name}: an encoder-decoder model, expected a causal language model (--target)")
    if model.get_output_embeddings() is None or model.get_input_embeddings() is None:
        raise TargetError(f"target {name}: {type(model).__name__} has no LM head, expected a causal language model")
    model.eval().requires_grad_(False)
    owner, layers = find_layers(model.get_decoder(), config.num_hidden_layers, name)
    norm, scale, softcap = check_head(model, owner, layers, name)
    embedding = model.get_input_embeddings().weight
    return Target(
        name=name,
        model=model,
        tokenizer=tokenizer,
        layers=layers,
        final_norm=norm,
        num_layers=len(layers),
        hidden_size=embedding.shape[1],
        vocab_size=model.get_output_embeddings().weight.shape[0],
        device=execution_device(model.get_input_embeddings()),
        dtype=model.dtype,
        eos_ids=_eos_ids(model, tokenizer),
        logit_scale=scale,
        logit_softcap=softcap,
    )


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for holder in (getattr(model, "generation_config", None), model.config.get_text_config(decoder=True), tokenizer):
        value = getattr(holder, "eos_token_id", None)
        found.update([value] if isinstance(value, int) else value or [])
    return frozenset(found)


def _fingerprint(model: Any) -> str:
    config = {key: value for key, value in model.config.to_dict().items() if key not in _VOLATILE_CONFIG}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        # Offloaded weights have no values here: their names and shapes must do.
        if weight.is_meta:
            continue
        # An odd stride, so that it does not stay in one column.
        flat = weight.detach().flatten()[:: (weight.numel() // _SAMPLES_PER_TENSOR) | 1]
        digest.update(flat.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
