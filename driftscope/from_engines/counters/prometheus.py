"""Prometheus text, as `curl http://server/metrics` gives it: counters of vLLM, gauges of SGLang.

Names as of vLLM 0.32 (`vllm/v1/spec_decode/metrics.py`) and SGLang 0.5 (`sglang:spec_accept_length`, which has the bonus
token in it). Servers of several engine processes have one sample each: they are added up.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, field

from driftscope.from_engines.counters.model import Counters, CountersError, counted

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*$")
_POSITION = re.compile(r'(?:^|,)\s*position="(\d+)"')
_REASON = re.compile(r'(?:^|,)\s*finished_reason="(\w+)"')
_SPEC = "vllm:spec_decode_"
_KNOWN = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos")
BONUS = "the counters hold drafted tokens only: the bonus token of a round is not among them"


@dataclass
class Scrape:
    """The samples in question of one answer of /metrics, summed over engines."""

    totals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    positions: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    gauges: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    requests: float | None = None
    generated: float | None = None

    def minus(self, where: str, before: Scrape) -> Scrape:
        """What was counted since. CountersError where a counter fell: the server was started anew between the two."""
        made = Scrape(gauges=self.gauges)
        for name, value in self.totals.items():
            made.totals[name] = _since(where, name, value, before.totals.get(name, 0.0))
        for place, value in self.positions.items():
            made.positions[place] = _since(where, f"position {place + 1}", value, before.positions.get(place, 0.0))
        for name in ("requests", "generated"):
            now, then = getattr(self, name), getattr(before, name)
            if now is not None:
                setattr(made, name, _since(where, name, now, then or 0.0))
        return made


def looks_like(text: str) -> bool:
    """Whether this is an answer of /metrics."""
    return any(line.startswith(("vllm:", "sglang:", "# HELP", "# TYPE")) for line in text.splitlines()[:2000])


def scrape(where: str, text: str) -> Scrape:
    """Read the samples. CountersError for a sample that is cut off or no number."""
    found = Scrape()
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith(("vllm:", "sglang:")):
            continue
        name = re.split(r"[{\s]", line, maxsplit=1)[0].removesuffix("_total")
        if name.endswith("_created") or not _wanted(name):
            continue
        sample = _SAMPLE.match(line)
        value = _number(sample["value"]) if sample else None
        if sample is None or value is None:
            raise CountersError(f"{where}: line {number} is cut off or no sample ({line[:60]!r})")
        if not math.isfinite(value) or value < 0:
            raise CountersError(f"{where}: line {number}: {name} is {sample['value']}, expected a number of 0 or more")
        labels = sample["labels"] or ""
        _keep(where, number, found, name, labels, value)
    return found


def vllm(where: str, found: Scrape) -> Counters:
    """The counters of a vLLM server."""
    missing = [name for name in ("num_drafts", "num_accepted_tokens") if name not in found.totals]
    if missing:
        raise CountersError(
            f"{where}: no {_SPEC}{missing[0]}: the file is cut off, or the server runs without speculative decoding"
        )
    places = sorted(found.positions)
    if places != list(range(len(places))) or not places:
        raise CountersError(
            f"{where}: {_SPEC}num_accepted_tokens_per_pos has positions {places}, expected 0, 1, ...; the file is cut off"
        )
    return counted(
        where,
        engine="vllm",
        source="Prometheus text of vLLM",
        drafts=found.totals["num_drafts"],
        drafted=found.totals.get("num_draft_tokens"),
        accepted=found.totals["num_accepted_tokens"],
        per_position=[found.positions[place] for place in places],
        bonus=BONUS,
        requests=None if found.requests is None else round(found.requests),
        generated=None if found.generated is None else round(found.generated),
    )


def sglang(where: str, found: Scrape, drafts: int | None, tokens: int | None) -> Counters:
    """The gauges of an SGLang server, which come without a count: `drafts` has to be given."""
    lengths, rates = found.gauges["sglang:spec_accept_length"], found.gauges["sglang:spec_accept_rate"]
    if not lengths or max(lengths) == 0:
        raise CountersError(
            f"{where}: sglang:spec_accept_length is missing or 0: nothing was drafted since the last report"
        )
    if drafts is None:
        raise CountersError(
            f"{where}: sglang:spec_accept_length is a mean without its count: say with --drafts how many verify steps it is over,"
            " or give meta_info of the answers, which counts"
        )
    length = sum(lengths) / len(lengths)
    return from_mean(where, "gauge of SGLang", length, sum(rates) / len(rates) if rates else None, drafts, tokens, ())


def from_mean(
    where: str,
    source: str,
    length: float,
    rate: float | None,
    drafts: int,
    tokens: int | None,
    notes: tuple[str, ...],
    rounding: float = 0.0,
) -> Counters:
    """Counters of SGLang from a mean that has the bonus token in it, and the share of drafted tokens that was accepted."""
    if not math.isfinite(length) or length < 1:
        raise CountersError(f"{where}: an accept length of {length:g}; with the bonus token in it, it is 1 or more")
    if tokens is None and rate is not None and rate > 0:
        tokens = round((length - 1) / rate)
    if tokens is None:
        raise CountersError(f"{where}: drafted tokens of a round are not said: give --tokens (--speculative-num-steps)")
    return counted(
        where,
        engine="sglang",
        source=source,
        drafts=drafts,
        accepted=round((length - 1) * drafts),
        per_position=None,
        tokens=tokens,
        bonus="accept length has the bonus token in it: 1 is taken off",
        rounding=rounding,
        notes=notes,
    )


def _wanted(name: str) -> bool:
    spec = name.startswith(_SPEC) and name.removeprefix(_SPEC) in _KNOWN
    return spec or name in (
        "vllm:request_success", "vllm:generation_tokens", "sglang:spec_accept_length", "sglang:spec_accept_rate",
    )  # fmt: skip


def _keep(where: str, number: int, found: Scrape, name: str, labels: str, value: float) -> None:
    if name.startswith("sglang:"):
        found.gauges[name].append(value)
    elif name == "vllm:generation_tokens":
        found.generated = (found.generated or 0.0) + value
    elif name == "vllm:request_success":
        reason = _REASON.search(labels)
        done = reason is None or reason[1] in ("stop", "length", "repetition")
        found.requests = (found.requests or 0.0) + (value if done else 0.0)
    elif name.endswith("_per_pos"):
        place = _POSITION.search(labels)
        if place is None:
            raise CountersError(f"{where}: line {number}: {name} without its position")
        found.positions[int(place[1])] += value
    else:
        found.totals[name.removeprefix(_SPEC)] += value


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _since(where: str, name: str, now: float, then: float) -> float:
    if now < then:
        raise CountersError(
            f"{where}: {name} fell from {then:g} to {now:g}: the server was started anew, or the two scrapes are the other way"
            " round (--before is the earlier one)"
        )
    return now - then
