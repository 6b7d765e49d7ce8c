"""From a file, or standard input, to counters: which form it is, is seen from what is in it."""

from __future__ import annotations

from pathlib import Path

from driftscope.files.text import text_of
from driftscope.from_engines.counters import answers, logs, prometheus
from driftscope.from_engines.counters.model import Counters, CountersError


def read_counters(
    metrics: str | Path, *, before: str | Path | None = None, drafts: int | None = None, tokens: int | None = None
) -> Counters:
    """The counters of a server.

    Args:
        metrics: a file, or `-` for standard input: Prometheus text, a log, or JSON (`driftscope.from_engines.counters`).
        before: an earlier scrape of the same server, which is taken off; Prometheus text only.
        drafts: verified drafts, where the file holds a mean without its count (SGLang's gauge and log).
        tokens: drafted tokens of a round, where the file does not say it.

    Returns:
        Drafted and accepted tokens, in all and by position.

    Raises:
        CountersError: one line on what is wrong with the file.
    """
    where = "standard input" if str(metrics) == "-" else str(metrics)
    text = text_of(Path(metrics), CountersError)
    if not text.strip():
        raise CountersError(f"{where}: empty")
    if answers.looks_like(text):
        _only_prometheus(before)
        return answers.read(where, text)
    if prometheus.looks_like(text):
        found = prometheus.scrape(where, text)
        if before is not None:
            found = found.minus(where, prometheus.scrape(str(before), text_of(Path(before), CountersError)))
        if found.totals or not found.gauges:
            return prometheus.vllm(where, found)
        return prometheus.sglang(where, found, drafts, tokens)
    if logs.looks_like(text):
        _only_prometheus(before)
        return logs.read(where, text, drafts, tokens)
    raise CountersError(
        f"{where}: no counters of speculative decoding in it: expected the text of /metrics, lines of the log of vLLM or SGLang, or"
        " JSON with counts; is speculative decoding on, and is the file whole?"
    )


def _only_prometheus(before: str | Path | None) -> None:
    if before is not None:
        raise CountersError("--before takes one scrape of /metrics off another; logs and JSON are read by themselves")
