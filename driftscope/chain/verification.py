"""The chance that a drafted token is accepted, from the target's distribution p and the draft's q, by rule of verification.

Of one step:
- greedy 1[argmax p = argmax q] · exact match sum p q · one-hot p(argmax q) · lossless and block sum min(p, q).
Of all steps up to k, on a path x that the target samples, E over x of:
- exact match prod q(x) · one-hot 1[x = argmax q at every step] · lossless prod min(1, q(x) / p(x)), since
  sum over paths of prod min(p, q) = E over x ~ p of prod min(1, q / p) · block min over i <= k of prod over j <= i of q(x) / p(x),
  not above 1.
The last one follows from block verification's own acceptance p_i = min(1, p_{i-1} p / q) of a path drawn from q, whose expected
number of accepted tokens is the sum over i of E over x ~ q of p_i: with w_i = prod q / p, w_i p_i = min(w_{i-1} p_{i-1}, w_i).
Sources: Leviathan et al. (2023), section 3; Sun et al., Block Verification Accelerates Speculative Decoding (2024), section 4.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from driftscope.chain.verification_rules import Sampling


def distribution(
    logits: Float[Tensor, "row token"], how: Sampling, before: Int[Tensor, "row length"] | None = None
) -> Float[Tensor, "row token"]:
    """The probabilities that sampling from these logits has, as transformers processes them. before: the tokens so far, ids of
    these logits, repeated to one length; needed for a penalty."""
    from transformers.generation import logits_process as processors

    scores, ids = logits.float(), before
    if how.penalty is not None:
        assert ids is not None, "a penalty is on what was said before"
        scores = processors.RepetitionPenaltyLogitsProcessor(how.penalty)(ids, scores)
    if how.temperature != 1:
        scores = scores / how.temperature
    if how.top_k is not None:
        scores = processors.TopKLogitsWarper(min(how.top_k, scores.shape[-1]))(ids, scores)
    if how.top_p is not None and how.top_p < 1:
        scores = _top_p(scores, how.top_p)
    return scores.softmax(-1)


def _top_p(scores: Float[Tensor, "row token"], top_p: float) -> Float[Tensor, "row token"]:
    """As TopPLogitsWarper of transformers, whose cumulative sum has no deterministic kernel on CUDA."""
    ordered, places = scores.sort(-1)
    dropped = ordered.log_softmax(-1).logcumsumexp(-1).exp() <= 1 - top_p
    dropped[:, -1] = False
    return scores.masked_fill(dropped.gather(-1, places.argsort(-1)), float("-inf"))


def step_acceptance(p: Float[Tensor, "row token"], q: Float[Tensor, "row token"]) -> dict[str, Float[Tensor, " row"]]:
    """By rule, the chance that a step's token is accepted. p and q over the draft vocabulary; p may sum to less than 1 there."""
    best = q.argmax(-1, keepdim=True)
    lossless = torch.minimum(p, q).sum(-1)
    return {
        "exact_match": (p * q).sum(-1),
        "one_hot": p.gather(-1, best)[:, 0],
        "lossless": lossless,
        "block": lossless,
    }


def joint_acceptance(
    p: Float[Tensor, "row step"], q: Float[Tensor, "row step"], likeliest: Bool[Tensor, "row step"]
) -> dict[str, Float[Tensor, "row step"]]:
    """By rule, estimates whose mean over texts that the target sampled is the chance that the tokens of steps 1 .. k are accepted.

    p, q: of the text's token at each step; likeliest: whether it is the draft's likeliest.
    """
    ratio = q / p
    weight = ratio.cumprod(-1)
    return {
        "exact_match": q.cumprod(-1),
        "one_hot": likeliest.to(q.dtype).cumprod(-1),
        "lossless": ratio.clamp(max=1).cumprod(-1),
        "block": weight.cummin(-1).values.clamp(max=1),
    }
