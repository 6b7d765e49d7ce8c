"""Every form of counters gives the same kind of thing, and whatever is wrong with a file is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driftscope.from_engines.counters.model import CountersError
from driftscope.from_engines.counters.reading import read_counters

FILES = Path(__file__).parents[1] / "golden" / "engines" / "counters"


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "metrics"
    file.write_text(text, encoding="utf-8")
    return file


def metrics(drafts=100, drafted=300, accepted=90, positions=(50, 30, 10), labels='engine="0",model_name="m"') -> str:
    lines = ["# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts."]
    values = {"num_drafts": drafts, "num_draft_tokens": drafted, "num_accepted_tokens": accepted}
    lines += [f"vllm:spec_decode_{name}_total{{{labels}}} {float(value)}" for name, value in values.items()]
    lines += [f"vllm:spec_decode_{name}_created{{{labels}}} 1.79e+09" for name in values]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {float(count)}'
        for place, count in enumerate(positions)
    ]
    return "\n".join(lines) + "\n"


def test_prometheus_text_of_vllm() -> None:
    found = read_counters(FILES / "vllm-metrics.txt")
    assert (found.engine, found.drafts, found.tokens, found.accepted) == ("vllm", 871, 4, 629)
    assert found.per_position == (375, 143, 71, 40)
    assert (found.requests, found.generated) == (24, 1500)
    # 871 rounds give a token of the target's own each; every answer begins with one from the prefill.
    assert found.drafts + found.accepted + found.requests >= found.generated
    assert "bonus" in found.bonus


def test_the_log_of_vllm_says_the_same_up_to_its_digits() -> None:
    whole, log = read_counters(FILES / "vllm-metrics.txt"), read_counters(FILES / "vllm-log.txt")
    assert (log.drafts, log.tokens, log.engine) == (whole.drafts, whole.tokens, "vllm")
    assert log.per_position is not None
    assert whole.per_position is not None
    assert all(abs(a - b) <= log.rounding for a, b in zip(log.per_position, whole.per_position, strict=True))


def test_a_mean_of_sglang_has_the_bonus_token_taken_off() -> None:
    found = read_counters(FILES / "sglang-log.txt")
    assert (found.engine, found.tokens, found.per_position) == ("sglang", 3, None)
    assert found.drafts == 2 * 40 * 4
    # 0.79 of 320 steps.
    assert found.accepted == 253
    assert "taken off" in found.bonus
    assert "--drafts" in found.notes[0]
    assert read_counters(FILES / "sglang-log.txt", drafts=1000).drafts == 1000


def test_meta_info_of_sglang_has_positions() -> None:
    found = read_counters(FILES / "sglang-meta.json")
    assert (found.engine, found.drafts, found.accepted, found.requests) == ("sglang", 60, 42, 2)
    assert found.per_position == (28, 10, 4)


def test_a_histogram_of_aiperf() -> None:
    found = read_counters(FILES / "aiperf.json")
    assert found.drafts == 25600
    assert found.per_position == (19200, 14592, 10752, 7424, 4352)


def test_answers_of_vllm_one_a_line(tmp_path: Path) -> None:
    line = {"metrics": {"speculative_decoding": {"acceptance_histogram": {"0": 3, "2": 1}, "num_spec_tokens": 3}}}
    found = read_counters(written(tmp_path, "\n".join([json.dumps(line)] * 2)))
    assert (found.drafts, found.per_position, found.engine) == (8, (2, 2, 0), "vllm")


@pytest.mark.parametrize("value", [[41, 16, 7], [0.41, 0.16, 0.07]])
def test_plain_json(tmp_path: Path, value: list[float]) -> None:
    found = read_counters(written(tmp_path, json.dumps({"drafts": 100, "per_position": value})))
    assert found.per_position == (41, 16, 7)
    assert found.shares == pytest.approx((0.41, 0.16, 0.07))


def test_two_scrapes_give_what_was_counted_between(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.write_text(metrics(40, 120, 30, (20, 8, 2)))
    found = read_counters(written(tmp_path, metrics()), before=before)
    assert (found.drafts, found.accepted, found.per_position) == (60, 60, (30, 22, 8))


def test_engines_of_one_server_add_up(tmp_path: Path) -> None:
    other = metrics(labels='engine="1",model_name="m"')
    assert read_counters(written(tmp_path, metrics() + other)).per_position == (100, 60, 20)


def test_gauges_of_sglang_need_their_count(tmp_path: Path) -> None:
    text = 'sglang:spec_accept_length{tp_rank="0"} 1.9\nsglang:spec_accept_rate{tp_rank="0"} 0.3\n'
    with pytest.raises(CountersError, match="--drafts"):
        read_counters(written(tmp_path, text))
    found = read_counters(written(tmp_path, text), drafts=500)
    assert (found.drafts, found.tokens, found.accepted) == (500, 3, 450)


def test_fewer_positions_can_be_compared() -> None:
    found = read_counters(FILES / "vllm-metrics.txt").up_to(2)
    assert (found.tokens, found.per_position, found.accepted) == (2, (375, 143), 518)


SPEC = "vllm:spec_decode_num_drafts_total"
BAD = {
    "empty": ("", "empty"),
    "nothing of it": ("hello\nworld\n", "no counters of speculative decoding"),
    "without speculative decoding": ("# HELP vllm:x y\nvllm:x 1.0\n", "without speculative decoding"),
    "cut off within a line": (metrics()[:-6].replace('position="2"} ', 'position="2"'), "cut off"),
    "cut off between lines": ("\n".join(metrics().splitlines()[:7]), "cut off"),
    "a position missing": (metrics().replace('position="1"', 'position="7"'), "positions"),
    "not a number": (metrics().replace(" 100.0", " NaN"), "expected a number of 0 or more"),
    "a word": (metrics().replace(" 100.0", " many"), "cut off or no sample"),
    "negative": (metrics().replace(" 100.0", " -100.0"), "expected a number of 0 or more"),
    "half a draft": (metrics().replace(" 100.0", " 100.5"), "whole number"),
    "a later position accepted more": (
        metrics(accepted=120, positions=(50, 60, 10)),
        "position 2, more than 50 at position 1",
    ),
    "more accepted than drafted": (metrics(accepted=170, positions=(150, 10, 10)), "more than 100 drafts"),
    "another sum": (metrics(accepted=95), "add up to 90"),
    "nothing served": (metrics(0, 0, 0, (0, 0, 0)), "no draft was counted"),
    "log cut off": ("INFO SpecDecoding metrics: Mean acceptance length: 1.79, Accepted throughput: 29.", "cut off"),
    "log of nothing": (
        "SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, Drafted throughput: 0.00"
        " tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, Per-position acceptance rate: nan, nan, Avg Draft acceptance rate:"
        " nan%",
        "acceptance rate is 'nan'",
    ),
    "JSON cut off": ('{"drafts": 100, "per_position": [41, 16', "not valid JSON"),
    "JSON of something else": ('{"a": 1}', "JSON without counts"),
    "JSON that is not a list": ('{"drafts": 100, "per_position": 41}', "expected a list"),
    "JSON with a NaN": ('{"drafts": 100, "per_position": [NaN]}', "expected a count"),
    "JSON with a negative": ('{"drafts": 100, "per_position": [41, -1]}', "expected a count"),
    "JSON with a word": ('{"drafts": "x", "per_position": [41]}', "expected a number"),
    "JSON that increases": ('{"drafts": 100, "per_position": [16, 41]}', "position 2"),
    "a histogram of words": ('{"acceptance_histogram": {"a": 1}}', "expected counts by length"),
    "a tower of lists": ("[" * 3000, "not valid JSON"),
}


@pytest.mark.parametrize("text", [part[0] for part in BAD.values()], ids=list(BAD))
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str) -> None:
    wanted = next(message for given, message in BAD.values() if given == text)
    with pytest.raises(CountersError) as caught:
        read_counters(written(tmp_path, text))
    assert wanted in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_was_started_anew(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.write_text(metrics(400, 1200, 300, (200, 80, 20)))
    with pytest.raises(CountersError, match="started anew"):
        read_counters(written(tmp_path, metrics()), before=before)
    with pytest.raises(CountersError, match="--before"):
        read_counters(FILES / "aiperf.json", before=before)


def test_no_file_and_no_regular_file(tmp_path: Path) -> None:
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(CountersError):
            read_counters(place)
