"""Captures: what a target says after each prompt, and the states from which any drafter's chains can start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor

from driftscope.captures.cache import CacheKey, CaptureCache, StoredCapture
from driftscope.captures.record import continue_greedily, record
from driftscope.drafter.onednn import packed_products
from driftscope.errors import DriftscopeError, TargetError
from driftscope.target.loops import loop_mask
from driftscope.target.model import Target

Progress = Callable[[str, int, int], None]
"""Called with the stage (`generate` or `record`), prompts done and prompts to do."""

_TOKENS_PER_BATCH = 32768
_STATES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_ROWS = 256
MIN_ANCHORS = 4
"""Positions of a continuation at which chains must be able to start, for it to be of use."""


@runtime_checkable
class PromptLike(Protocol):
    """A tokenised prompt."""

    @property
    def id(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def token_ids(self) -> Sequence[int]: ...


@dataclass(frozen=True, eq=False)
class Capture:
    """The record of one prompt and its greedy continuation: T tokens, the first P of them the prompt. On the CPU."""

    prompt_id: str
    category: str
    token_ids: Int64[Tensor, " T"]
    prompt_length: int
    """P."""
    final: Float[Tensor, "T H"]
    """Post-final-norm hidden states, in the target's dtype; NaN where an engine's capture holds none."""
    boundaries: dict[int, Float[Tensor, "T H"]]
    """The requested ones, in the target's dtype."""
    rms: Float32[Tensor, "boundary T"]
    """RMS (L2 / sqrt(H)) of every boundary at every position; NaN at boundaries that an engine's capture lacks."""
    near_tie: Bool[Tensor, " T"]
    """True at p in P-1 .. T-2 where the recording forward prefers another token than the text's p + 1."""
    loop: Bool[Tensor, " T"]
    """True at positions of the continuation inside a repetition loop."""
    stopped: bool
    """Whether the text ends with an end-of-text token."""
    greedy: bool = True
    """Whether the final states confirm the text as the target's greedy one; without it nothing tells what is accepted."""

    @property
    def length(self) -> int:
        """T, in tokens."""
        return len(self.token_ids)

    @property
    def new_tokens(self) -> int:
        """T - P: tokens of the continuation."""
        return self.length - self.prompt_length


def capture(
    target: Target,
    prompts: Sequence[PromptLike],
    *,
    max_new_tokens: int = 128,
    boundaries: Sequence[int] = (),
    cache: CaptureCache | None = None,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> list[Capture]:
    """Continue each prompt greedily and record the text, or take it from the cache; in the order of `prompts`.

    A cached text that lacks a requested boundary is recorded again and the boundary added. Every capture is in the
    cache as soon as it is made. Batches shrink where texts are long. Raises TargetError for a prompt that does not fit
    the target, states that are not finite, or boundaries that do not exist; DriftscopeError for an unwritable cache.
    """
    wanted = tuple(sorted(set(boundaries)))
    if any(not 0 <= b <= target.num_layers for b in wanted):
        raise TargetError(f"boundaries {list(wanted)} asked for, but target {target.name} has 0 to {target.num_layers}")
    for prompt in prompts:
        _check(target, prompt, max_new_tokens)
    keys = [_key(target, prompt, max_new_tokens) for prompt in prompts] if cache else []
    stored: list[StoredCapture | None] = [None] * len(prompts)
    if cache:
        stored = [_kept(cache, keys[i], wanted, target, prompt, max_new_tokens) for i, prompt in enumerate(prompts)]
    todo = [index for index, found in enumerate(stored) if found is None or len(found.boundaries) < len(wanted)]
    new = [index for index in todo if stored[index] is None]
    if cache and todo:
        cache.check_writable()
    report = progress or (lambda stage, done, total: None)
    done: dict[int, Capture] = {}

    def finish(index: int, text: list[int] | None) -> None:
        prompt, found = prompts[index], stored[index]
        if found is None:
            assert text is not None
            found = _record_new(target, prompt, text, wanted)
            if cache:
                meta = {"prompt_id": prompt.id, "prompt_length": len(prompt.token_ids), "length": len(text)}
                about = {"name": target.name, "dtype": str(target.dtype).removeprefix("torch.")}
                cache.write(keys[index], found.tensors, found.boundaries, target=about, meta=meta)
        else:
            missing = [b for b in wanted if b not in found.boundaries]
            again = record(target, found.tensors["token_ids"].tolist(), missing, label=_label(prompt))
            found = StoredCapture(found.tensors, {**found.boundaries, **again.boundaries})
            if cache:
                cache.add_boundaries(keys[index], again.boundaries)
        done[index] = _capture(target, prompt, found)
        report("record", len(done), len(todo))

    with packed_products(target.model):
        for index in todo:
            if stored[index] is not None:
                finish(index, None)
        generated = 0
        for batch in _batches(new, prompts, batch_size, max_new_tokens):
            texts = _continue(target, [prompts[index] for index in batch], max_new_tokens)
            generated += len(batch)
            report("generate", generated, len(new))
            for index, text in zip(batch, texts, strict=True):
                finish(index, [*prompts[index].token_ids, *text])
    for index, found in enumerate(stored):
        if found is not None and index not in done:
            done[index] = _capture(target, prompts[index], found)
    return [done[index] for index in range(len(prompts))]


def long_enough(record: Capture, horizon: int) -> bool:
    """Whether a continuation has room for anchors."""
    return record.new_tokens - horizon >= MIN_ANCHORS


def _kept(
    cache: CaptureCache, key: CacheKey, wanted: Sequence[int], target: Target, prompt: PromptLike, max_new_tokens: int
) -> StoredCapture | None:
    """What the cache holds of a prompt, if it is what a recording would make."""
    found = cache.read(key, wanted)
    if found is None:
        return None
    width, ids = target.hidden_size, found.tensors.get("token_ids", torch.zeros(0))
    length, most = ids.numel(), len(prompt.token_ids) + max_new_tokens
    shapes = {
        "token_ids": (length,),
        "final": (length, width),
        "rms": (target.num_layers + 1, length),
        "near_tie": (length,),
    }
    try:
        for name, shape in shapes.items():
            check_stored(name, found.tensors.get(name), shape)
        for b, state in found.boundaries.items():
            check_stored(f"boundary {b}", state, (length, width))
        asked = list(prompt.token_ids)
        if not len(asked) <= length <= most or ids[: len(asked)].tolist() != asked:
            raise DriftscopeError("it is of another text")
        if int(ids.min()) < 0 or int(ids.max()) >= target.vocab_size:
            raise DriftscopeError("it holds tokens that the target does not have")
    except DriftscopeError as error:
        cache.discard(key, str(error))
        return None
    return found


def _record_new(target: Target, prompt: PromptLike, text: list[int], wanted: Sequence[int]) -> StoredCapture:
    start = len(prompt.token_ids) - 1
    made = record(target, text, wanted, first=start, label=_label(prompt))
    token_ids = torch.tensor(text)
    near_tie = torch.zeros(len(text), dtype=torch.bool)
    near_tie[start:-1] = made.argmax[:-1] != token_ids[start + 1 :]
    tensors = {"token_ids": token_ids, "final": made.final, "rms": made.rms, "near_tie": near_tie}
    return StoredCapture(tensors, made.boundaries)


def _capture(target: Target, prompt: PromptLike, found: StoredCapture) -> Capture:
    token_ids, length = found.tensors["token_ids"], len(prompt.token_ids)
    return Capture(
        prompt_id=prompt.id,
        category=prompt.category,
        token_ids=token_ids,
        prompt_length=length,
        final=found.tensors["final"],
        boundaries=dict(sorted(found.boundaries.items())),
        rms=found.tensors["rms"],
        near_tie=found.tensors["near_tie"],
        loop=torch.from_numpy(loop_mask(token_ids.numpy(), length)),
        stopped=len(token_ids) > length and int(token_ids[-1]) in target.eos_ids,
    )


def check_stored(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raises DriftscopeError, with the reason alone, where a stored tensor is none that a recording makes."""
    if tensor is None:
        raise DriftscopeError(f"{name} is missing")
    if tuple(tensor.shape) != shape:
        raise DriftscopeError(f"{name} has shape {list(tensor.shape)}, expected {list(shape)}")
    kind = {"token_ids": torch.int64, "near_tie": torch.bool, "rms": torch.float32}.get(name)
    if tensor.dtype is not kind and (kind is not None or tensor.dtype not in _STATES):
        raise DriftscopeError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}")
    if kind is None and not all(part.isfinite().all() for part in tensor.split(_ROWS)):
        raise DriftscopeError(f"{name} holds values that are not finite")


def _continue(target: Target, batch: Sequence[PromptLike], max_new_tokens: int) -> list[list[int]]:
    """Halves the batch where the accelerator's memory is too small for it."""
    try:
        return continue_greedily(target, [prompt.token_ids for prompt in batch], max_new_tokens)
    except torch.OutOfMemoryError as error:
        if len(batch) == 1:
            raise TargetError(
                f"{_label(batch[0])}: out of memory with a text of up to {len(batch[0].token_ids) + max_new_tokens} "
                "tokens; lower --max-new-tokens or choose a smaller --dtype"
            ) from error
    torch.cuda.empty_cache()
    half = len(batch) // 2
    return _continue(target, batch[:half], max_new_tokens) + _continue(target, batch[half:], max_new_tokens)


def _batches(
    indices: Sequence[int], prompts: Sequence[PromptLike], batch_size: int, max_new_tokens: int
) -> Iterator[list[int]]:
    """Prompts of like length together, longest first; a batch holds at most `batch_size` rows and 32768 tokens."""
    left = sorted(indices, key=lambda index: -len(prompts[index].token_ids))
    while left:
        longest = len(prompts[left[0]].token_ids) + max_new_tokens
        rows = max(1, min(batch_size, _TOKENS_PER_BATCH // longest))
        yield left[:rows]
        left = left[rows:]


def _key(target: Target, prompt: PromptLike, max_new_tokens: int) -> CacheKey:
    return CacheKey.of(target.fingerprint(), str(target.dtype), target.eos_ids, prompt.token_ids, max_new_tokens)


def _check(target: Target, prompt: PromptLike, max_new_tokens: int) -> None:
    ids, limit = prompt.token_ids, target.max_positions
    if len(ids) == 0:
        raise TargetError(f"{_label(prompt)}: it has no tokens")
    if max(ids) >= target.vocab_size or min(ids) < 0:
        raise TargetError(
            f"{_label(prompt)}: token ids {min(ids)} .. {max(ids)}, but target {target.name} has {target.vocab_size}"
        )
    if limit is not None and len(ids) + max_new_tokens > limit:
        raise TargetError(
            f"{_label(prompt)}: {len(ids)} tokens and {max_new_tokens} new ones exceed the {limit} positions of target "
            f"{target.name}; shorten it or lower --max-new-tokens"
        )


def _label(prompt: PromptLike) -> str:
    return f"prompt {prompt.id}"
