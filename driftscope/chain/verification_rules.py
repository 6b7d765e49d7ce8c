"""How drafted tokens are verified, by name. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

from driftscope.errors import DriftscopeError

RULES = ("greedy", "exact_match", "one_hot", "lossless", "block")
"""greedy: both take their likeliest token. exact_match: both sample, and the tokens must be the same. one_hot: the draft takes its
likeliest token, which is accepted with the target's probability of it. lossless: the draft samples and is accepted with probability
min(1, p / q). block: the same, the chain judged as a whole."""


@dataclass(frozen=True)
class Sampling:
    """How logits become a distribution: repetition penalty, temperature, top-k and top-p, in this order."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    penalty: float | None = None
    """Repetition penalty on tokens of the text so far."""

    @property
    def name(self) -> str:
        """`t0.7,k50,p0.9,r1.1`, as `sampling` reads it."""
        parts = [f"t{self.temperature:g}"]
        parts += [
            f"{key}{value:g}"
            for key, value in (("k", self.top_k), ("p", self.top_p), ("r", self.penalty))
            if value is not None
        ]
        return ",".join(parts)


def sampling(text: str) -> Sampling:
    """From `t0.7,k50,p0.9,r1.1`: temperature, top-k, top-p and repetition penalty; what is not said is not used."""
    values: dict[str, float] = {}
    for part in text.split(","):
        key, number = part.strip()[:1], part.strip()[1:]
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        whole = key != "k" or value == int(value)
        if (
            key not in ("t", "k", "p", "r")
            or key in values
            or not 0 < value < float("inf")
            or not whole
            or (key == "p" and value > 1)
        ):
            raise DriftscopeError(
                f"sampling {text} is not known: give t (temperature), k (top-k), p (top-p up to 1), r (repetition penalty), each"
                " with a number above 0, such as t0.7,k50,p0.9"
            )
        values[key] = value
    top_k = values.get("k")
    return Sampling(values.get("t", 1.0), None if top_k is None else int(top_k), values.get("p"), values.get("r"))


@dataclass(frozen=True)
class SamplingPair:
    """Target and draft apart."""

    target: Sampling
    draft: Sampling

    @property
    def name(self) -> str:
        return f"{self.target.name}/{self.draft.name}"


def sampling_pair(text: str) -> SamplingPair:
    """From `TARGET/DRAFT`, such as `t0.7/t1`; without a slash both sample alike."""
    target, slash, draft = text.partition("/")
    return SamplingPair(sampling(target), sampling(draft if slash else target))
