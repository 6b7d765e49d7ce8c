"""The two things a capture asks of the target: greedy continuations in batches, and one recording forward a text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from driftscope.drafter.argmax import largest
from driftscope.errors import TargetError
from driftscope.target.model import Target

_HEAD_ROWS = 256


@dataclass(frozen=True)
class Recording:
    """What one forward over a text of T tokens gives, on the CPU."""

    final: Float[Tensor, "T H"]
    """Post-final-norm hidden states, in the model's dtype."""
    boundaries: dict[int, Float[Tensor, "T H"]]
    """The requested ones, in the model's dtype."""
    rms: Float[Tensor, "boundary T"]
    """RMS over the features, of every boundary at every position, float32."""
    argmax: Int[Tensor, " next"]
    """Most probable next token at every position from `first` on."""


def continue_greedily(target: Target, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """The greedy continuation of each prompt, at most `max_new_tokens` long, its end-of-text token included.

    The prompts run as one batch, padded on the left. Sampling settings and penalties that the model's own generation
    config holds are not used.
    """
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    with _plain_greedy(target, max_new_tokens):
        texts = target.model.generate(input_ids=ids.to(target.device), attention_mask=mask.to(target.device))
    return [_until_eos(row, target.eos_ids) for row in texts[:, longest:].tolist()]


@contextlib.contextmanager
def _plain_greedy(target: Target, max_new_tokens: int) -> Iterator[None]:
    """The model with a generation config of ours: what generate() is given, it completes from the model's."""
    from transformers import GenerationConfig

    own = target.model.generation_config
    eos = sorted(target.eos_ids)
    target.model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=max_new_tokens, eos_token_id=eos or None, pad_token_id=eos[0] if eos else 0
    )
    try:
        yield
    finally:
        target.model.generation_config = own


def _until_eos(tokens: list[int], eos_ids: frozenset[int]) -> list[int]:
    end = next((index + 1 for index, token in enumerate(tokens) if token in eos_ids), len(tokens))
    return tokens[:end]


def record(
    target: Target, token_ids: Sequence[int], boundaries: Sequence[int], *, first: int = 0, label: str = "text"
) -> Recording:
    """One forward over `token_ids` alone, so that no padding enters the record.

    Raises TargetError, with `label` and the boundary, when a state is not finite.
    """
    import nnsight

    length, n = len(token_ids), target.num_layers
    layers = [target.nn.get(target.paths[layer]) for layer in target.layers]
    norm = target.nn.get(target.paths[target.final_norm])
    wanted = frozenset(boundaries)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(token_ids)], device=target.device), "use_cache": False}
    if target.accepts("logits_to_keep"):
        inputs["logits_to_keep"] = 1

    with torch.no_grad(), target.nn.trace(**inputs):
        rms = nnsight.save([])
        states = nnsight.save([])
        for b in range(n):
            _keep(layers[b].input, b, wanted, rms, states)
        _keep(norm.input, n, wanted, rms, states)
        final = nnsight.save(norm.output.clone())

    expected = (1, length, target.hidden_size)
    if tuple(final.shape) != expected or any(tuple(state.shape) != expected for _, state in states):
        raise TargetError(f"target {target.name}: its layers do not pass states of shape {expected} to each other")
    by_boundary = torch.stack([values.reshape(-1, length)[0].cpu() for values in rms])
    final = final[0].cpu()
    bad = torch.nonzero(~torch.isfinite(by_boundary))
    if len(bad) or not torch.isfinite(final).all():
        where = f"boundary {int(bad[0, 0])}, position {int(bad[0, 1])}" if len(bad) else "the final norm's output"
        raise TargetError(
            f"{label}: the target's states are not finite at {where} in {target.dtype}; its weights are broken, "
            "or they need --dtype float32"
        )
    return Recording(
        final=final,
        boundaries={b: state[0].cpu() for b, state in states},
        rms=by_boundary,
        argmax=_argmax(target, final[first:]),
    )


def _keep(state: Tensor, b: int, wanted: frozenset[int], rms: list[Tensor], states: list[tuple[int, Tensor]]) -> None:
    rms.append(state.float().square().mean(-1).sqrt())
    if b in wanted:
        # A copy, because a model may go on adding to its residual stream in place.
        states.append((b, state.clone()))


def _argmax(target: Target, final: Tensor) -> Tensor:
    """In pieces, because logits of a whole text can be larger than the model."""
    return torch.cat([largest(target.head(piece)).cpu() for piece in final.split(_HEAD_ROWS)])
