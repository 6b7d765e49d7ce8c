"""JSON with counts of requests: SGLang's `meta_info`, vLLM's `metrics.speculative_decoding`, AIPerf's exports, plain JSON.

Names as of SGLang 0.5 (`_calculate_spec_decoding_metrics`), vLLM 0.32 (`--per-request-spec-decode-metrics`) and AIPerf 0.14
(`profile_export_aiperf.json`, `profile_export.jsonl`). One object, a list, or one object a line; counts add up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from driftscope.files.json import check_parts
from driftscope.from_engines.counters.model import Counters, CountersError, Engine, counted, from_histogram, whole

_START = re.compile(r"\s*(\{|\[\s*[\[{\]])")
_DEEPEST = 12
_STEPS = ("spec_verify_ct",)
_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_SGLANG_BINS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
_BINS = "acceptance_histogram"
_POOLED = "pooled_spec_decode_acceptance_histogram"
_BONUS = "accepted drafts are counted without the bonus token"


def looks_like(text: str) -> bool:
    """Whether this is JSON; lines of a log can begin with a bracket too."""
    return _START.match(text) is not None


def read(where: str, text: str) -> Counters:
    """Whatever of the known forms the text holds. CountersError where it holds none."""
    values = _values(where, text)
    if len(values) == 1 and isinstance(values[0], dict) and {"drafts", "per_position"} <= values[0].keys():
        return _plain(where, values[0])
    found = [part for value in values for part in _objects(value)]
    pooled = [part[_POOLED] for part in found if _POOLED in part]
    if pooled:
        return _from_bins(where, "", "AIPerf's pooled histogram", [_listed(where, part) for part in pooled], None)
    bins = [_listed(where, part[_BINS]) for part in found if _BINS in part]
    if bins:
        named = {str(part.get("engine", "vllm")) for part in found if _BINS in part}
        engine: Engine = "vllm" if named == {"vllm"} else "sglang" if named == {"sglang"} else ""
        sizes = [part.get("num_spec_tokens") for part in found if _BINS in part]
        size = max((size for size in sizes if isinstance(size, int)), default=None)
        return _from_bins(where, engine, f"acceptance of {len(bins)} requests", bins, size)
    metas = [part for part in found if any(name in part for name in _STEPS)]
    if metas:
        return _sglang(where, metas)
    raise CountersError(
        f"{where}: JSON without counts of acceptance: expected SGLang's meta_info, vLLM's acceptance_histogram, AIPerf's"
        ' histogram, or {"drafts": n, "per_position": [...]}; a report of guidellm holds none, the log of its server does'
    )


def _plain(where: str, value: Mapping[str, Any]) -> Counters:
    positions = value["per_position"]
    if not isinstance(positions, list):
        raise CountersError(f"{where}: per_position is {type(positions).__name__}, expected a list of counts")
    engine = str(value.get("engine", "")).lower()
    shares = bool(positions) and all(isinstance(p, float) and 0 <= p <= 1 for p in positions)
    drafts = value["drafts"]
    if shares and isinstance(drafts, int) and drafts > 1:
        # Shares with few digits are as good as counts.
        positions = [round(share * drafts) for share in positions]
    return counted(
        where,
        engine="vllm" if engine == "vllm" else "sglang" if engine == "sglang" else "",
        source="plain JSON",
        drafts=drafts,
        per_position=positions,
        accepted=value.get("accepted"),
        bonus="per_position is taken for drafted tokens, without the bonus token",
        requests=value.get("requests") if isinstance(value.get("requests"), int) else None,
    )


def _sglang(where: str, metas: list[Mapping[str, Any]]) -> Counters:
    bins = [_first(meta, _SGLANG_BINS) for meta in metas]
    drafts = sum(whole(where, "spec_verify_ct", meta["spec_verify_ct"]) for meta in metas)
    proposed = [_first(meta, _PROPOSED) for meta in metas]
    size = None
    if drafts and all(value is not None for value in proposed):
        size = round(sum(whole(where, "proposed drafts", value) for value in proposed) / drafts)
    if all(isinstance(part, list) for part in bins):
        source = f"meta_info of {len(metas)} answers of SGLang"
        return _from_bins(where, "sglang", source, [_listed(where, part) for part in bins], size)
    accepted = [_first(meta, _ACCEPTED) for meta in metas]
    if any(value is None for value in accepted):
        # Older servers: all that an answer has of it is its length and the number of verify steps.
        accepted = [
            max(whole(where, "completion_tokens", meta.get("completion_tokens")) - 1 - meta["spec_verify_ct"], 0)
            for meta in metas
        ]
    return counted(
        where,
        engine="sglang",
        source=f"meta_info of {len(metas)} answers of SGLang, without a histogram",
        drafts=drafts,
        accepted=sum(whole(where, "accepted drafts", value) for value in accepted),
        per_position=None,
        tokens=size,
        bonus=_BONUS,
        requests=len(metas),
    )


def _from_bins(where: str, engine: Engine, source: str, bins: list[list[Any]], size: int | None) -> Counters:
    longest = max(len(part) for part in bins)
    total = [sum(part[place] for part in bins if place < len(part)) for place in range(longest)]
    drafts, positions = from_histogram(where, total)
    positions += [0] * ((size or 1) - len(positions))
    requests = len(bins) if len(bins) > 1 else None
    return counted(
        where,
        engine=engine,
        source=source,
        drafts=drafts,
        per_position=positions,
        bonus=_BONUS,
        requests=requests,
    )


def _listed(where: str, value: Any) -> list[Any]:
    """A histogram as a list; AIPerf and vLLM write objects with the accepted count as the key."""
    if isinstance(value, list):
        filled = value
    elif isinstance(value, dict) and all(str(key).isdigit() and int(key) <= 64 for key in value):
        filled = [value.get(str(place), 0) for place in range(max(map(int, value), default=0) + 1)]
    else:
        raise CountersError(
            f"{where}: a histogram of accepted tokens is {type(value).__name__}, expected counts by length"
        )
    return [whole(where, f"rounds with {place} accepted tokens", part) for place, part in enumerate(filled)]


def _first(meta: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((meta[name] for name in names if meta.get(name) is not None), None)


def _objects(value: Any, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Every object, outermost first."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _objects(part, depth + 1)
    elif isinstance(value, list):
        for part in value:
            yield from _objects(part, depth + 1)


def _values(where: str, text: str) -> list[Any]:
    """One value, or one a line."""
    check_parts(where, text, CountersError)
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError) as whole_problem:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise CountersError(f"{where}: not valid JSON ({whole_problem}); cut off?") from whole_problem
        try:
            return [json.loads(line) for line in lines]
        except (ValueError, RecursionError) as problem:
            raise CountersError(f"{where}: neither JSON nor JSON lines ({problem}); cut off?") from problem
