"""The engine: shards per probe and prompt, probes with texts of their own, and going on where a run stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from driftscope.api import probe_pair
from driftscope.captures.conditions import Condition, Source, distinct, fitting, spread
from driftscope.chain.pair import Pair
from driftscope.chain.prompt_chains import Subject
from driftscope.drafter import build_drafter
from driftscope.errors import RunError
from driftscope.measuring import measure as engine
from driftscope.measuring.measure import in_random_order
from driftscope.probes import chosen
from driftscope.probes.condition_rows import condition_rows
from driftscope.probes.template import TemplateProbe
from driftscope.progress import NullProgress
from driftscope.runs.run import Run
from driftscope.target.prompts import load_prompts
from tests import tiny, tiny_pair, tiny_target
from tests.probes import texts

OPTIONS: dict[str, Any] = {"max_new_tokens": 14, "depth": 3, "horizon": 4, "sink": "none"}


@pytest.fixture(scope="module")
def pair() -> Pair:
    torch.manual_seed(0)
    target = tiny_target.tiny_target(vocab_size=260, eos_token_id=257)
    target.tokenizer = texts.tokenizer(texts.IM_FORMAT, adds_bos=True)
    config = tiny_pair.CONFIG.replace("user", vocab_size=260)
    drafter = build_drafter(
        config, tiny.weights(config), target_embedding=target.embedding_weight, target_head=target.head_weight
    )
    checkpoint: Any = SimpleNamespace(path="drafter", sha256="ab", layout="eagle3", warnings=())
    return Pair(checkpoint, config, target, drafter)


@pytest.fixture
def place(tmp_path: Path) -> dict[str, Any]:
    """Where a run of two chats goes."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"id": "a", "prompt": "Why so?"}\n{"id": "b", "prompt": "How come?"}\n')
    return {"prompts": prompts, "out": tmp_path / "run", "cache_dir": tmp_path / "cache"}


class Upper:
    """Asks the first prompt in capitals, and with a text that does not fit."""

    name = shard = "upper"
    question = "Is the drafter put off by capitals?"

    def __init__(self, **parameters: object) -> None:
        self.parameters = parameters
        self.measured = 0

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return (2,)

    def variants(self, pair: Pair) -> list[Any]:
        from driftscope.probes import Variant

        return [Variant("upper/own", "config", self.parameters), Variant("upper/long", "config", {})]

    def conditions(self, pair: Pair, sources: Sequence[Source], settings: Any, new_tokens: int) -> list[Condition]:
        source = sources[0]
        ids = pair.target.tokenizer(source.prompt.messages[0].content.upper())["input_ids"]
        own = Condition("upper/own", source.prompt.id, "", tuple(ids), new_tokens=10, system_rows=1)
        return [own, Condition("upper/long", source.prompt.id, "", tuple(ids) * 99)]

    def planned(self, prompts: int, settings: Any) -> list[Any]:
        return []

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        self.measured += 1
        assert subject.condition is not None
        assert subject.condition.system_rows == 1
        assert 2 in subject.capture.boundaries
        assert subject.capture.new_tokens == 10
        return condition_rows(subject, subject.condition.name)

    def cost(self, depth: int) -> float:
        return 2.0


def test_a_probe_with_texts_of_its_own(pair: Pair, place: dict[str, Any]) -> None:
    probe = Upper()
    run = probe_pair(pair, **place, **OPTIONS, probes=[probe])
    assert run.probes == ["upper"]
    assert run.done("upper", "a")
    assert not run.done("upper", "b")
    steps = run.table("steps", probe="upper")
    assert set(steps["variant"]) == {"upper/own"}
    assert list(steps["anchors"]) == [10 - OPTIONS["horizon"]] * OPTIONS["depth"]
    rows = run.table("conditions").set_index("variant")
    assert rows.loc["upper/own", ["prompt_tokens", "text_tokens"]].tolist() == [8, 18]
    assert pd.isna(rows.loc["upper/own", "left_out"])
    assert rows.loc["upper/long", "left_out"] == f"{8 * 99 + 14} tokens, the target holds 256"
    assert pd.isna(rows.loc["upper/long", "text_tokens"])

    probe_pair(pair, **place, **OPTIONS, probes=[probe], resume=True)
    assert probe.measured == 1
    changed = Upper(capitals="some")
    with pytest.raises(RunError, match="upper with other options"):
        probe_pair(pair, **place, **OPTIONS, probes=[changed], resume=True)


def test_a_continuation_without_room_for_anchors_is_left_out(pair: Pair, place: dict[str, Any]) -> None:
    class Short(Upper):
        name = shard = "short"

        def conditions(self, *given: Any) -> list[Condition]:
            import dataclasses

            return [dataclasses.replace(super().conditions(*given)[0], new_tokens=OPTIONS["horizon"] + 1)]

    run = probe_pair(pair, **place, **OPTIONS, probes=[Short()])
    assert run.table("conditions")["left_out"].tolist() == ["continuation too short"]
    assert run.table("steps").empty


def test_the_shipped_template_probe_on_a_tiny_pair(pair: Pair, place: dict[str, Any]) -> None:
    run = probe_pair(pair, **place, **OPTIONS, probes=[TemplateProbe(prompts=1, formats=("plain_format",))])
    rows = run.table("conditions")
    assert set(rows["prompt"]) == {"a"}
    reasons = rows.groupby("variant", observed=True)["left_out"].agg(lambda column: column.iloc[0])
    assert pd.isna(reasons["template/regular"])
    assert pd.isna(reasons["template/no_template"])
    assert reasons["template/no_bos"] == "the regular prompt starts with no BOS token"
    assert reasons["template/system_long"].endswith("the target holds 256")
    measured = set(run.table("steps", probe="template")["variant"])
    assert measured == set(rows.loc[rows["left_out"].isna(), "variant"])
    # The regular prompt under this probe is the run's own one.
    probe_pair(pair, **place, **OPTIONS, probes=engine_probes("norms"), resume=True)
    keys = ["prompt", "step"]
    own = run.table("steps", probe="clean").query("feed == 'drafted'").set_index(keys)["accepted"]
    own = own.loc[["a"]]
    regular = run.table("steps", probe="template").query("variant == 'template/regular'").set_index(keys)["accepted"]
    assert regular.to_dict() == own.to_dict()


def engine_probes(*names: str) -> list[Any]:
    from driftscope.probes import chosen

    return chosen(names)


def test_an_interrupted_run_keeps_what_is_done(
    pair: Pair, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(NullProgress):
        def advance(self, n: int = 1, note: str = "") -> None:
            if note == "a clean":
                raise KeyboardInterrupt

    probes = engine_probes("norms", "attention")
    with pytest.raises(KeyboardInterrupt):
        probe_pair(pair, **place, **OPTIONS, probes=probes, progress=Stop())
    assert Run.open(place["out"]).done("clean", "a")
    begun = []
    monkeypatch.setattr(engine, "Subject", lambda *given, **named: begun.append(given[1]) or Subject(*given, **named))
    run = probe_pair(pair, **place, **OPTIONS, probes=probes, resume=True)
    assert [record.prompt_id for record in begun] == ["b"]
    assert run.done("clean", "b")


def test_conditions_with_the_same_tokens_are_left_out() -> None:
    one, two, three = (Condition(name, "a", "", ids) for name, ids in (("x", (1, 2)), ("y", (1, 2)), ("z", (3, 4))))
    gone = Condition("w", "a", "", (3, 4), left_out="no reason")
    assert [c.left_out for c in distinct([one, two, gone, three])] == [None, "same tokens as x", "no reason", None]


def test_conditions_that_do_not_fit_are_left_out() -> None:
    condition = Condition("x", "a", "", (1, 2, 3))
    assert fitting(condition, 5, 8).left_out is None
    assert fitting(condition, 5, None).left_out is None
    assert fitting(condition, 5, 7).left_out == "8 tokens, the target holds 7"
    assert fitting(Condition("x", "a", "", (1,)), 5, None).left_out == "fewer than 2 tokens"


def test_spread_keeps_both_ends() -> None:
    assert spread(range(3), 5) == [0, 1, 2]
    assert spread(range(48), 4) == [0, 16, 31, 47]


def test_until_ends_a_run_and_resume_goes_on(
    pair: Pair, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftscope.figures import running_cost

    place["prompts"].write_text("".join(f'{{"id": "{n}", "prompt": "Why {n}?"}}\n' for n in range(5)))
    # Two prompts give no interval; here they are enough.
    monkeypatch.setattr(running_cost.RunningCost, "enough", property(lambda self: self.until and self.prompts >= 2))
    said: list[str] = []

    class Lines(NullProgress):
        def message(self, text: str) -> None:
            said.append(text)

    probes = chosen("cost,norms")
    given: dict[str, Any] = {**place, **OPTIONS, "probes": probes, "audit": False, "progress": Lines()}
    run = probe_pair(pair, **given, until=0.5)
    first = [
        source.prompt.id for source in in_random_order([Source(p, None) for p in load_prompts(place["prompts"])], 0)
    ]  # type: ignore[arg-type]
    for shard in ("cost", "clean"):
        assert {name for name in first if run.done(shard, name)} == set(first[:2])
    assert "3 prompts were not needed" in said[-1]
    whole = probe_pair(pair, **given, resume=True)
    assert all(whole.done("cost", name) for name in first)
    straight = probe_pair(pair, **{**given, "out": place["out"].with_name("straight")})
    assert {**whole.summary(), "provenance": None} == {**straight.summary(), "provenance": None}
