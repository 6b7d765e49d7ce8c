"""The captures of a pair that is loaded, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftscope.captures.cache import CaptureCache
from driftscope.captures.capture import Capture
from driftscope.captures.capture import capture as take
from driftscope.chain.drafter_inputs import needed_boundaries
from driftscope.chain.pair import Pair
from driftscope.target.prompts import load_prompts, tokenize_prompts


def capture_prompts(
    pair: Pair,
    prompts: str | Path | None = None,
    *,
    max_new_tokens: int = 128,
    boundaries: Sequence[int] = (),
    cache_dir: str | Path | None = None,
) -> list[Capture]:
    """What the pair's target says after each prompt, with the features that the drafter reads.

    Args:
        pair: drafter and target.
        prompts: a file, the shipped ones without it; prompts that do not fit into the target are left out.
        max_new_tokens: tokens of each continuation.
        boundaries: further ones to record, 0 (embeddings) to the number of layers.
        cache_dir: where captures are kept; what is there already is taken from there.

    Returns:
        One Capture a prompt.

    Raises:
        PromptError: prompts that cannot be read.
        TargetError: a target that cannot continue them.
    """
    target = pair.target
    room = (target.max_positions - max_new_tokens) if target.max_positions else 1 << 30
    loaded = load_prompts(Path(prompts) if prompts is not None else None)
    kept, _ = tokenize_prompts(loaded, target.tokenizer, max_tokens=room, min_tokens=2)
    wanted = sorted({*needed_boundaries(pair.config, target.num_layers), *boundaries})
    cache = CaptureCache(Path(cache_dir) if cache_dir is not None else None)
    return take(target, kept, max_new_tokens=max_new_tokens, boundaries=wanted, cache=cache)
