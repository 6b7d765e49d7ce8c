"""A continuation that the target samples, recorded like a greedy one."""

from __future__ import annotations

import hashlib

import torch

from driftscope.captures.capture import Capture
from driftscope.captures.record import record
from driftscope.chain.verification import distribution
from driftscope.chain.verification_rules import Sampling
from driftscope.target.loops import loop_mask
from driftscope.target.model import Target


def sampled_capture(target: Target, greedy: Capture, how: Sampling, new_tokens: int, seed: int) -> Capture:
    """The same prompt, continued by sampling; the same text for the same seed on the same machine.

    Nothing is accepted by equality with such a text: `greedy` of the record is False.
    """
    prompt = greedy.token_ids[: greedy.prompt_length].tolist()
    own = int.from_bytes(hashlib.sha256(f"{seed} {how.name} {greedy.prompt_id}".encode()).digest()[:6])
    ids = _sample(target, prompt, how, new_tokens, own)
    made = record(
        target, ids, sorted(greedy.boundaries), first=len(prompt) - 1, label=f"prompt {greedy.prompt_id}, sampled"
    )
    tokens = torch.tensor(ids)
    return Capture(
        prompt_id=greedy.prompt_id,
        category=greedy.category,
        token_ids=tokens,
        prompt_length=len(prompt),
        final=made.final,
        boundaries=made.boundaries,
        rms=made.rms,
        near_tie=torch.zeros(len(ids), dtype=torch.bool),
        loop=torch.from_numpy(loop_mask(tokens.numpy(), len(prompt))),
        stopped=ids[-1] in target.eos_ids and len(ids) > len(prompt),
        greedy=False,
    )


def _sample(target: Target, prompt: list[int], how: Sampling, new_tokens: int, seed: int) -> list[int]:
    from transformers import GenerationConfig, LogitsProcessorList

    eos = sorted(target.eos_ids)
    config = GenerationConfig(
        do_sample=True,
        max_new_tokens=new_tokens,
        # All of the sampling is in the processor below, the same as for the rules.
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=eos or None,
        pad_token_id=eos[0] if eos else 0,
    )
    own = target.model.generation_config
    # generate() completes what it is given from the model's own config.
    target.model.generation_config = config
    ids = torch.tensor([prompt], device=target.device)
    try:
        with torch.random.fork_rng([target.device] if target.device.type == "cuda" else []):
            torch.manual_seed(seed)
            made = target.model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                logits_processor=LogitsProcessorList([lambda so_far, logits: distribution(logits, how, so_far).log()]),
            )
    finally:
        target.model.generation_config = own
    found: list[int] = made[0].tolist()
    return found
