"""Log lines: vLLM's periodic `SpecDecoding metrics`, SGLang's `Decode batch ... accept len`.

Forms as of vLLM 0.32 (`SpecDecodingLogging.log`) and SGLang 0.5 (`scheduler_metrics_mixin.py`). A line is of the time since the
line before it, so lines add up.
"""

from __future__ import annotations

import re

from driftscope.from_engines.counters.model import Counters, CountersError, counted
from driftscope.from_engines.counters.prometheus import from_mean

_VLLM = "SpecDecoding metrics:"
_VLLM_PARTS = re.compile(
    r"SpecDecoding metrics:.*?Accepted: \S+ tokens, Drafted: (?P<drafted>\S+) tokens,"
    r" Per-position acceptance rate: (?P<shares>.+?), Avg Draft acceptance rate: \S+%"
)
_SGLANG = "accept len:"
_SGLANG_PARTS = re.compile(r"accept len: (?P<length>[^\s,]+)(?:, accept rate: (?P<rate>[^\s,]+))?")
_RUNNING = re.compile(r"#running-req: (\d+)")
_INTERVAL = 40
"""Decode steps of a line of SGLang: its `--decode-log-interval`."""


def looks_like(text: str) -> bool:
    """Whether a log holds lines about speculative decoding."""
    return _VLLM in text or _SGLANG in text


def read(where: str, text: str, drafts: int | None, tokens: int | None) -> Counters:
    """All lines together."""
    if _VLLM in text:
        return _vllm(where, [line for line in text.splitlines() if _VLLM in line])
    return _sglang(where, [line for line in text.splitlines() if _SGLANG in line], drafts, tokens)


def _vllm(where: str, lines: list[str]) -> Counters:
    drafts, drafted = 0.0, 0.0
    positions: list[float] = []
    rounding = 0.0
    for line in lines:
        part = _VLLM_PARTS.search(line)
        if part is None:
            raise CountersError(f"{where}: a line of SpecDecoding metrics is cut off ({line[-60:]!r})")
        shares = [_float(where, "an acceptance rate", word) for word in part["shares"].split(", ")]
        if positions and len(shares) != len(positions):
            raise CountersError(
                f"{where}: lines of {len(positions)} and of {len(shares)} positions: two servers in one log"
            )
        here = _float(where, "Drafted", part["drafted"]) / len(shares)
        positions = positions or [0.0] * len(shares)
        # Printed with three digits.
        counts = [round(share * here) for share in shares]
        positions = [total + count for total, count in zip(positions, counts, strict=True)]
        rounding += 0.5e-3 * here + 0.5
        drafts, drafted = drafts + here, drafted + _float(where, "Drafted", part["drafted"])
    return counted(
        where,
        engine="vllm",
        source=f"log of vLLM, {len(lines)} line{'s' * (len(lines) > 1)}",
        drafts=round(drafts),
        drafted=drafted,
        per_position=positions,
        bonus="the rates by position hold drafted tokens only; Mean acceptance length has the bonus token in it and is not used",
        rounding=rounding,
    )


def _sglang(where: str, lines: list[str], drafts: int | None, tokens: int | None) -> Counters:
    total, weight, rates = 0.0, 0, 0.0
    rated = True
    for line in lines:
        part = _SGLANG_PARTS.search(line)
        if part is None:
            raise CountersError(f"{where}: a line with an accept length is cut off ({line[-60:]!r})")
        running = _RUNNING.search(line)
        steps = _INTERVAL * max(int(running[1]), 1) if running else _INTERVAL
        total += steps * _float(where, "accept len", part["length"])
        weight += steps
        rated &= part["rate"] is not None
        rates += steps * _float(where, "accept rate", part["rate"] or "0")
    notes = () if drafts else (
        f"verify steps are not logged: taken for {_INTERVAL} a line and running request, SGLang's default (--drafts says how many)",
    )  # fmt: skip
    source = f"log of SGLang, {len(lines)} line{'s' * (len(lines) > 1)}"
    rate = rates / weight if rated else None
    return from_mean(where, source, total / weight, rate, drafts or weight, tokens, notes, 0.005 * weight)


def _float(where: str, name: str, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not 0 <= value < float("inf"):
        raise CountersError(f"{where}: {name} is {word!r}, expected a number of 0 or more")
    return value
