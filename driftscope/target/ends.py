"""The ends of a target: embedding, final norm and head, read from its shards by name; its layers are never loaded.

The model's own class is built without a layer and given those tensors, so that the norm, the scale of the embeddings and
what becomes of the logits are the model's own code.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from driftscope.checkpoints.reading import archives
from driftscope.checkpoints.reading.files import read_json
from driftscope.drafter.norms import RMSNorm
from driftscope.errors import CheckpointError, TargetError
from driftscope.target.locate import check_head, first_line
from driftscope.target.model import Target, _eos_ids, _load_config_and_tokenizer
from driftscope.target.placement import resolve_device

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
# What lies inside layers, towers for images and sound, or MTP heads is no end.
_INNER = re.compile(r"(^|\.)(layers|h|blocks|layer|mtp\w*)\.\d+\.|(^|\.)(mtp|vision\w*|visual\w*|audio\w*)\.")
# Names of a head before transformers renamed it.
_OLD_HEADS = ("embed_out.weight", "head.weight", "output.weight")
_WHOLE = "only its embedding, final norm and head are loaded; this needs the whole target: leave out --capture"
_SAMPLES = 4096


@dataclass(eq=False)
class TargetEnds(Target):
    """A target without its layers: it can embed tokens, normalise boundary n and give logits, and nothing else."""

    config: Any = None
    """The text config of the whole model."""
    assumed: tuple[str, ...] = ()
    """What could not be read off the model's own code."""

    @property
    def text_config(self) -> Any:
        return self.config

    def embedded(self, token_ids: Int[Tensor, " T"]) -> Float[Tensor, "T H"]:
        """Boundary 0 of a text: what the first layer is given."""
        seen: list[Tensor] = []
        hook = self.final_norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            with torch.no_grad():
                self.model(input_ids=token_ids.to(self.device)[None], use_cache=False)
        finally:
            hook.remove()
        return seen[0].reshape(len(token_ids), self.hidden_size)

    def normed(self, last: Float[Tensor, "T H"]) -> Float[Tensor, "T H"]:
        """The final norm's output for boundary n, in the dtype of the norm."""
        weight = next(self.final_norm.parameters(), self.embedding_weight)
        with torch.no_grad():
            normed: Tensor = self.final_norm(last.to(device=weight.device, dtype=weight.dtype))
        return normed

    def recorded_as(self, fingerprint: str | None) -> None:
        """Take the fingerprint of the whole target, where it is known: the ends alone cannot tell it."""
        self._fingerprint = fingerprint

    def fingerprint(self) -> str:
        """Of the ends; another than that of the whole target, which a capture records where it was there."""
        return self._fingerprint or ends_digest(self)

    @property
    def nn(self) -> Any:
        raise TargetError(f"target {self.name}: {_WHOLE}")

    def forward(self, token_ids: Tensor, **kwargs: Any) -> Any:
        raise TargetError(f"target {self.name}: {_WHOLE}")


def ends_digest(target: Target) -> str:
    """SHA-256 (hex) over depth, width and up to 4096 values of embedding, final norm and head, each as bfloat16: the same
    for a whole target and its ends, in whatever dtype they were loaded."""
    digest = hashlib.sha256(f"{target.num_layers} {target.hidden_size} {target.vocab_size}".encode())
    for weight in (target.embedding_weight, *target.final_norm.parameters(), target.head_weight):
        if weight.is_meta:
            continue
        flat = weight.detach().flatten()[:: (weight.numel() // _SAMPLES) | 1]
        digest.update(flat.cpu().to(torch.bfloat16).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def load_target_ends(
    name: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: Literal["auto"] | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> TargetEnds:
    """The ends of a target in a folder or on a Hub, of which only the shards that hold them are fetched.

    `dtype` "auto" is float32 on a CPU, else that of the stored head. Raises TargetError in one line where a tensor is
    missing, quantised, or of another size than the config says.
    """
    name = str(name)
    folder = Path(name).expanduser()
    if folder.exists() and not (folder / "config.json").is_file():
        raise TargetError(f"target {name}: no config.json in it; expected a Hugging Face model folder (--target)")
    if not folder.exists() and (folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1):
        raise TargetError(f"target {name}: no such folder (--target)")
    place = resolve_device(device)
    whole, tokenizer = _load_config_and_tokenizer(
        str(folder) if folder.exists() else name, {"revision": revision, "trust_remote_code": trust_remote_code}
    )
    config = whole.get_text_config(decoder=True)
    try:
        shards = _local_shards(folder) if folder.exists() else _hub_shards(name, revision)
        model, assumed = _model(config, shards, name, trust_remote_code)
    except CheckpointError as error:
        raise TargetError(f"target {name}: {error}") from error
    weight = model.get_output_embeddings().weight
    if dtype == "auto":
        dtype = torch.float32 if place.type == "cpu" else weight.dtype
    model = model.to(device=place, dtype=dtype).eval().requires_grad_(False)
    model.generation_config = _generation(folder, whole)
    if isinstance(model, _Plain):
        norm, scale, softcap = model.norm, 1.0, None
    else:
        norm, scale, softcap = check_head(model, model.get_decoder(), nn.ModuleList(), name)
    embedding = model.get_input_embeddings().weight
    return TargetEnds(
        name=name,
        model=model,
        tokenizer=tokenizer,
        layers=nn.ModuleList(),
        final_norm=norm,
        num_layers=config.num_hidden_layers,
        hidden_size=embedding.shape[1],
        vocab_size=model.get_output_embeddings().weight.shape[0],
        device=embedding.device,
        dtype=dtype,
        eos_ids=_eos_ids(SimpleNamespace(config=config, generation_config=model.generation_config), tokenizer),
        logit_scale=scale,
        logit_softcap=softcap,
        config=config,
        assumed=assumed,
    )


class _Plain(nn.Module):
    """Ends whose model class is not known here: an RMSNorm between embedding and head."""

    def __init__(self, config: Any, eps: float) -> None:
        super().__init__()
        self.config = config
        # Named as most models name them, so that the stored tensors are found.
        parts = {"embed_tokens": nn.Embedding(1, config.hidden_size), "norm": RMSNorm(config.hidden_size, eps)}
        self.model = nn.ModuleDict(parts)
        self.lm_head = nn.Linear(config.hidden_size, 1, bias=False)

    def get_input_embeddings(self) -> nn.Module:
        return self.model["embed_tokens"]

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    @property
    def norm(self) -> nn.Module:
        """The final norm."""
        return self.model["norm"]

    def forward(self, input_ids: Tensor, **_: Any) -> Tensor:
        logits: Tensor = self.lm_head(self.norm(self.model["embed_tokens"](input_ids)))
        return logits


Shards = tuple[list[str], Callable[[str], Tensor]]
"""Names of the stored tensors, and how one is read."""


def _model(config: Any, shards: Shards, name: str, trust_remote_code: bool) -> tuple[Any, tuple[str, ...]]:
    """The model without layers, with the stored ends in it, and what had to be assumed."""
    model, assumed = _empty(config, trust_remote_code)
    names, load = shards
    outer = [stored for stored in names if not _INNER.search(stored)]
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = getattr(config, "tie_word_embeddings", False)
    for own, slot in list(model.state_dict().items()):
        module = model.get_submodule(own.rpartition(".")[0])
        stored = matching(outer, own)
        if stored is None and module is head:
            if tied:
                continue
            stored = next((found for old in _OLD_HEADS if (found := matching(outer, old))), None)
        if stored is None:
            raise TargetError(f"target {name}: no tensor {own} in its shards; first of {len(names)}: {names[0]}")
        tensor = load(stored)
        if not tensor.is_floating_point() or tensor.dtype.itemsize < 2:
            raise TargetError(f"target {name}: {stored} is stored as {tensor.dtype}; its ends must not be quantised")
        if tensor.ndim != slot.ndim or tensor.shape[1:] != slot.shape[1:]:
            wanted = [*tensor.shape[:1], *slot.shape[1:]]
            raise TargetError(f"target {name}: {stored} has shape {list(tensor.shape)}, its config asks for {wanted}")
        setattr(module, own.rpartition(".")[2], nn.Parameter(tensor, requires_grad=False))
    if tied:
        head.weight = embedding.weight
    return model, assumed


def matching(stored: Iterable[str], own: str) -> str | None:
    """The stored name of a tensor that the model calls `own`; wrappers put other words in front."""
    names = list(stored)
    parts = own.split(".")
    for start in range(max(1, len(parts) - 1)):
        tail = ".".join(parts[start:])
        found = [name for name in names if name == tail or name.endswith(f".{tail}")]
        if found:
            return min(found, key=len) if len(found) == 1 or own in found else None
    return None


def _empty(config: Any, trust_remote_code: bool) -> tuple[Any, tuple[str, ...]]:
    """The class of this config without layers and with a vocabulary of 8, or an RMSNorm between two matrices."""
    from transformers import AutoModelForCausalLM

    small = copy.deepcopy(config)
    for key, value in (("num_hidden_layers", 0), ("vocab_size", 8), ("layer_types", []), ("pad_token_id", None)):
        if hasattr(small, key):
            setattr(small, key, value)
    small.quantization_config = None
    del small.quantization_config
    try:
        model = AutoModelForCausalLM.from_config(small, dtype=torch.float32, trust_remote_code=trust_remote_code)
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
        return model, ()
    except Exception as error:
        # Classes of other people's making: anything can happen in them.
        eps = next((value for key in ("rms_norm_eps", "norm_eps") if (value := getattr(config, key, None))), None)
        if eps is None:
            raise TargetError(f"its class cannot be built without layers: {first_line(error)}") from error
        assumed = f"its final norm is taken for an RMSNorm with eps {eps:g}: {config.model_type} is not known here"
        return _Plain(config, float(eps)), (assumed,)


def _generation(folder: Path, config: Any) -> Any:
    """Where a folder names the tokens that end a text."""
    file = folder / "generation_config.json"
    found = read_json(file).get("eos_token_id") if file.is_file() else None
    return SimpleNamespace(eos_token_id=found if found is not None else getattr(config, "eos_token_id", None))


def _local_shards(folder: Path) -> Shards:
    index = folder / _INDEX
    if index.is_file():
        return _indexed(folder, index, lambda shard: folder / shard)
    if not (folder / _SINGLE).is_file():
        raise CheckpointError(f"neither {_INDEX} nor {_SINGLE} in it; its ends are read from safetensors only")
    file = folder / _SINGLE
    return list(archives.safetensors_header(file)), lambda name: archives.safetensors_tensor(file, name)


def _hub_shards(repo: str, revision: str | None) -> Shards:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    def fetched(file: str) -> Path:
        return Path(hf_hub_download(repo, file, revision=revision))

    try:
        try:
            index = fetched(_INDEX)
        except EntryNotFoundError:
            file = fetched(_SINGLE)
            return list(archives.safetensors_header(file)), lambda name: archives.safetensors_tensor(file, name)
        return _indexed(index.parent, index, fetched)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, EntryNotFoundError, OSError) as error:
        raise CheckpointError(f"not a folder here, and the Hub did not give it ({first_line(error)})") from error


def _indexed(folder: Path, index: Path, fetch: Callable[[str], Path]) -> Shards:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: no weight_map")

    def load(name: str) -> Tensor:
        shard = weight_map[name]
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise CheckpointError(f"{index}: {shard!r} is not the name of a file in this folder")
        file = fetch(shard)
        if not file.is_file():
            raise CheckpointError(f"{folder}: {index.name} places {name} in {shard}, which is not there")
        return archives.safetensors_tensor(file, name)

    return list(weight_map), load
