"""Every page on runs of every kind: what it shows agrees with the run, and what is wrong with a run is a message."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from driftscope.app import head_gallery, jobs, rights
from driftscope.compare import compare
from driftscope.runs.run import Run
from driftscope.show import frames
from tests.app.conftest import MAIN, PAGES, SMALL, charts, drawn, go, messages, warned, words

Start = Callable[..., AppTest]
ODD = {
    "empty": "nothing was measured yet",
    "partial": "",
    "corrupt": "anchors.parquet",
    "old-schema": "schema version 0",
    "torn": "not the run.json",
    "foreign": "not the run.json",
}


def test_there_is_a_file_for_every_page() -> None:
    files = {path.stem for path in (MAIN.parent / "views").glob("*.py")} - {"__init__"}
    assert files == set(PAGES)


def test_every_page_shows_a_run_that_holds_every_probe(app: Start, library: Path) -> None:
    test = app(library, run="drifting")
    least = {"overview": 3, "norms": 8, "attention": 8, "noise": 5, "acceptance": 7, "robustness": 1, "compare": 3}
    for page in PAGES:
        go(test, page)
        assert not messages(test), page
        assert not test.exception, page
        assert len(charts(test)) >= least.get(page, 0), page


def test_every_page_shows_a_real_run(app: Start, measured: Path) -> None:
    test = app(measured)
    for page in PAGES:
        go(test, page)
        assert not messages(test), page
        assert not test.exception, page


@pytest.mark.parametrize("name", ODD)
def test_a_run_that_cannot_be_shown_gives_a_message_on_every_page(app: Start, odd: Path, name: str) -> None:
    test = app(odd, run=name)
    for page in PAGES:
        go(test, page)
        assert not test.exception, page
        assert not any("Traceback" in text or "could not be drawn" in text for text in messages(test)), page
        if page not in ("compare", "new_run", "training", "checkpoint"):
            found = "\n".join(messages(test)).replace("\\", "") + words(test)
            if ODD[name] and page in ("overview",):
                assert ODD[name] in found
            if name not in ("empty", "partial"):
                assert warned(test) if name == "corrupt" else messages(test), page


def test_the_table_of_runs_tells_of_broken_ones_too(app: Start, odd: Path) -> None:
    table = app(odd, run="partial").run().dataframe[0].value.set_index("run")
    assert set(table.index) == set(ODD)
    assert "schema version 0" in table.loc["old-schema", "verdict"]
    assert "anchors.parquet" in table.loc["corrupt", "verdict"]
    assert table.loc["partial", "prompts"] == "2 of 13"
    assert table.loc["empty", "verdict"] == "no verdict"


def test_the_first_look_at_a_run_does_not_wait_for_the_lines_of_others(
    app: Start, library: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        shutil.copytree(library / "steady", tmp_path / name)
        # Nothing is known of texts of another time.
        os.utime(next((tmp_path / name / "shards" / "clean").iterdir()))
    test = app(tmp_path, run="one")
    verdicts = test.dataframe[0].value.set_index("run")["verdict"]
    assert verdicts["one"] == "no drift found"
    assert verdicts["two"] == "…"
    verdicts = test.run().dataframe[0].value.set_index("run")["verdict"]
    assert verdicts["two"] == "no drift found"


def test_the_overview_says_and_draws_what_the_run_holds(app: Start, library: Path) -> None:
    test = app(library, run="drifting")
    run = Run.open(library / "drifting")
    assert "would be without drift: drift costs" in words(test)
    onsets = {metric.label: metric.value for metric in test.metric[:5]}
    assert onsets["norm up"] == "step 2"
    assert float(onsets["served length"]) == pytest.approx(
        run.summary()["acceptance_length"]["served"]["mean"], abs=0.005
    )
    rows = drawn(test)
    growth = rows[rows["label"] == "over step 1"].drop_duplicates().sort_values("step")
    wanted = [step["growth"]["mean"] for step in run.summary()["steps"]]
    np.testing.assert_allclose(growth["mean"], wanted)
    assert "DS101" in words(test)


def test_the_figures_of_a_step_follow_the_step(app: Start, library: Path) -> None:
    test = app(library, run="drifting")
    steps = Run.open(library / "drifting").summary()["steps"]
    control = next(group for group in test.segmented_control if group.label == "Figures at step")
    assert control.value == "2"
    for number in ("2", "4"):
        test.segmented_control(key="q-step").set_value(number).run()
        figures = {metric.label: metric.value for metric in test.metric}
        assert figures["carry growth"] == f"{steps[int(number) - 1]['growth']['mean']:.2f}x"
        assert figures["sink mass"] == f"{steps[int(number) - 1]['mass']['sink']['mean']:.3f}"
        assert test.query_params["step"] == number
        reached = steps[int(number) - 1]["acceptance"]["conditional_denominator"]
        assert f"of {reached:,} chains" in words(test)


def test_another_run_is_chosen_in_the_sidebar(app: Start, library: Path) -> None:
    test = app(library, run="drifting")
    test.sidebar.selectbox(key="q-run").set_value("steady").run()
    assert test.query_params["run"] == "steady"
    assert test.title[0].value == "steady"
    go(test, "norms")
    assert test.query_params["run"] == "steady"


def test_a_link_opens_the_same_view(app: Start, library: Path) -> None:
    first = go(app(library, run="drifting"), "norms")
    first.segmented_control(key="q-unit").set_value("l2").run()
    first.segmented_control(key="q-mode").set_value("matched").run()
    address = dict(first.query_params)
    assert address == {"run": "drifting", "unit": "l2", "mode": "matched", "feed": "drafted"}
    second = app(library, page="norms", **address)
    assert second.segmented_control(key="q-mode").value == "matched"
    assert charts(second) == charts(first)


def test_an_address_that_names_nothing_falls_back(app: Start, library: Path) -> None:
    test = app(library, page="norms", run="gone", unit="feet")
    assert test.segmented_control(key="q-unit").value == "rms"
    assert not messages(test)
    assert "Unit: there is no feet here; this is rms" in words(test)
    assert "no run gone here" in words(app(library, run="gone"))


def test_an_address_changed_from_outside_wins(app: Start, library: Path) -> None:
    test = app(library, run="drifting")
    test.query_params["run"] = "steady"
    test.run()
    assert test.title[0].value == "steady"


def test_l2_is_rms_times_the_root_of_the_width(app: Start, library: Path) -> None:
    test = go(app(library, run="drifting"), "norms")
    rms = drawn(test)
    test.segmented_control(key="q-unit").set_value("l2").run()
    l2 = drawn(test)

    def carry(rows: object) -> np.ndarray:
        mine = rows[(rows["site"] == "carry") & rows["step"].notna()]  # type: ignore[index]
        mine = mine.drop_duplicates().sort_values("step")
        return mine["mean"].unique()

    np.testing.assert_allclose(carry(l2), carry(rms) * math.sqrt(64), rtol=1e-6)


def test_one_head_is_drawn_and_kept_in_the_address(app: Start, library: Path) -> None:
    test = go(app(library, run="drifting"), "attention")
    test.selectbox(key="q-head").set_value("0.1").run()
    assert test.query_params["head"] == "0.1"
    rows = drawn(test)
    mine = rows[(rows["head"] == 1) & (rows["bucket"] == "sink")].drop_duplicates()
    wanted = frames.head_masses([Run.open(library / "drifting")], 0, 1)
    wanted = wanted[(wanted["bucket"] == "sink")]
    assert set(mine["mean"].round(6)) == set(wanted["mean"].round(6))


def test_the_gallery_holds_every_head_and_leads_to_its_prompts(library: Path) -> None:
    run = Run.open(library / "drifting")
    ranked = frames.head_ranking([run], "sink")
    found = head_gallery.thumbnails(head_gallery.excess([run], "drafted"), ranked, "0.1")
    assert [entry["name"] for entry in found] == [f"{row.layer}.{row.head}" for row in ranked.itertuples()]
    assert [entry["name"] for entry in found if entry["picked"]] == ["0.1"]
    assert all(len(entry["cells"]) == len(head_gallery.PARTS) for entry in found)
    assert all(len(row) == SMALL.depth for entry in found for row in entry["cells"])
    # The planted run takes attention from the sink: the first row, its last step, goes the way that the ranking says.
    for entry, mean in zip(found, ranked["mean"], strict=True):
        assert mean < 0
        assert entry["moved"] == f"loses {-mean:.3f}"
        assert entry["cells"][0][-1]["title"].endswith(entry["moved"])
    moved = head_gallery.by_prompt([run], 0, 1, "sink", "drafted")
    assert len(moved) == len(set(moved["prompt"])) > 1
    assert list(moved["moved"].abs()) == sorted(moved["moved"].abs(), reverse=True)
    rows = run.table("heads", probe="clean")
    first = moved.iloc[0]
    keep = (
        (rows["prompt"] == first["prompt"]) & (rows["layer"] == 0) & (rows["head"] == 1) & (rows["feed"] == "drafted")
    )
    own = rows[keep & (rows["variant"] == "clean") & (rows["anchors"] > 0)]
    assert (own["excess/sink"] / own["anchors"]).abs().max() == pytest.approx(abs(first["moved"]), rel=1e-6)


def test_what_was_not_measured_comes_with_its_command(app: Start, library: Path) -> None:
    test = go(app(library, run="steady"), "noise")
    assert "noise probe was not run" in words(test)
    command = test.code[0].value
    assert command.startswith("driftscope probe drafters/post --target fake/target --probes noise -o ")
    assert "--resume" in command


def test_compare_gives_the_answer_and_the_figures_of_a_step(app: Start, library: Path) -> None:
    test = app(library, page="compare", runs="drifting,steady")
    found = compare([library / "drifting", library / "steady"])
    assert found.headline in words(test)
    rows = drawn(test)
    for name in ("drifting", "steady"):
        run = Run.open(library / name)
        label = next(iter(frames.labelled([run])))
        growth = [step["growth"]["mean"] for step in run.summary()["steps"]]
        mine = rows[(rows["run"] == label) & rows["step"].notna()]
        assert set(np.round(growth, 6)) <= set(mine["mean"].round(6))
    test.segmented_control(key="q-step").set_value("3").run()
    shown = words(test).replace("<wbr>", "")
    table = {
        cells[0]: cells[1:] for line in shown.split("<tr>") if len(cells := re.findall("<td>(.*?)</td>", line)) == 3
    }
    third = Run.open(library / "drifting").summary()["steps"][2]["growth"]
    assert any(value.startswith(f"{third['mean']:.2f} (") for value in table["growth (x step 1)"])
    anchors = Run.open(library / "drifting").summary()["steps"][2]["acceptance"]["anchors"]
    assert f"{anchors:,}" in table["anchors"]


def test_a_run_that_is_not_there_is_told_on_compare(app: Start, library: Path) -> None:
    test = app(library, page="compare", runs="drifting,steady,gone")
    assert any("Runs: there is no gone here" in text for text in warned(test))
    test.run()
    assert any("there is no gone here" in text for text in warned(test)), "as long as the others are shown"
    assert not any("there is no" in text for text in warned(app(library, page="compare", runs="drifting,steady")))


def test_runs_of_other_texts_are_not_compared(app: Start, library: Path, measured: Path) -> None:
    test = app(library, measured, page="compare", runs="drifting,tiny")
    assert "cannot be compared" in words(test)
    assert not messages(test)
    assert charts(test)


def test_a_single_run_is_nothing_to_compare(app: Start, measured: Path) -> None:
    assert "takes two runs" in words(app(measured, page="compare"))


def test_tokens_show_chain_and_keys_of_the_chosen_step(app: Start, measured: Path) -> None:
    run = Run.open(measured / "tiny")
    attended = run.table("attended")
    start = attended.iloc[0]
    test = app(measured, page="tokens", prompt=str(start["prompt"]), anchor=str(start["anchor"]))
    address = dict(test.query_params)
    assert address["anchor"] == str(start["anchor"])

    def heaviest(step: int) -> float:
        mine = attended[
            (attended["prompt"] == address["prompt"])
            & (attended["anchor"] == int(address["anchor"]))
            & (attended["step"] == step)
        ]
        return float(mine["mass"].max())

    for step in (1, 3):
        test.segmented_control(key="q-step").set_value(str(step)).run()
        keys, chain = (frame.value for frame in test.dataframe)
        assert keys["attention"].iloc[0] == pytest.approx(heaviest(step))
        assert keys["attention"].is_monotonic_decreasing
        assert list(chain["step"]) == [1, 2, 3]
        assert test.query_params["step"] == str(step)
    text = next(part.proto.body for part in test.get("html") if "pre-wrap" in part.proto.body)
    anchors = run.table("anchors")
    row = anchors[
        (anchors["prompt"] == address["prompt"])
        & (anchors["anchor"] == int(address["anchor"]))
        & (anchors["feed"] == "drafted")
        & (anchors["step"] == 1)
    ].iloc[0]
    assert f"w{row['drafted']}" in text


def test_the_next_anchor_is_a_click_away(app: Start, measured: Path) -> None:
    test = app(measured, page="tokens")
    before = int(test.query_params["anchor"])
    forward = next(button for button in test.button if button.proto.help == "next anchor")
    forward.click().run()
    assert int(test.query_params["anchor"]) == before + 1


def test_a_run_without_text_says_so(app: Start, library: Path) -> None:
    assert "holds no text" in words(app(library, page="tokens"))


def test_the_checkpoint_page_shows_switches_with_their_origin(app: Start, measured: Path) -> None:
    test = app(measured, page="checkpoint")
    info = Run.open(measured / "tiny").info
    shown = words(test).replace("<wbr>", "")
    for name in info.checkpoint.switches:
        assert f"<td>{name}</td>" in shown
    origin = info.checkpoint.origins["carry"]
    value = info.checkpoint.switches["carry"]
    assert f"<td>carry</td><td>{value}</td><td>{origin['source']}</td><td>{origin['detail']}</td>" in shown


def test_a_stored_audit_is_shown(app: Start, library: Path, tmp_path: Path) -> None:
    run = shutil.copytree(library / "steady", tmp_path / "run")
    interval = {"mean": 0.5, "low": 0.4, "high": 0.6}
    row = {"switch": "carry", "declared": "pre", "alternative": "post", "status": "better", "reason": "", "round": 1}
    found = {
        "outcome": "misconfigured",
        "verdict": "It was trained with a post-norm carry.",
        "findings": [{"code": "DS204", "title": "Carry", "statement": "better by far", "try": ["--carry post"]}],
        "hypotheses": [{**row, "loss_later": interval, "length": None}],
        "controls": [{"name": "random drafter", "loss": 9.0, "beaten": True}],
        "unsettled": ["no file says the rope base"],
        "prompts": 46,
        "anchors": 1736,
    }
    (run / "audit.json").write_text(json.dumps(found))
    test = app(run, page="checkpoint")
    assert any("post-norm carry" in text for text in messages(test))
    assert "DS204" in words(test)
    table = next(frame.value for frame in test.dataframe if "alternative" in frame.value)
    assert table["loss falls by (nats)"].tolist() == ["+0.50 (+0.40 to +0.60)"]
    assert "no file says the rope base" in words(test)
    assert "46 prompts and 1,736 anchors" in words(test)
    controls = next(frame.value for frame in test.dataframe if "control" in frame.value)
    assert controls["told apart"].tolist() == ["yes"]


def test_without_a_run_the_app_says_how_to_make_one(
    app: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    test = app()
    assert "no run yet" in words(test)
    assert not messages(go(test, "new_run"))
    (tmp_path / "empty").mkdir()
    assert "no run yet" in words(app(tmp_path / "empty"))


def test_an_unforeseen_error_is_a_message(app: Start, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("no *such* column")

    monkeypatch.setattr("driftscope.app.figures.probe", broken)
    test = go(app(library, run="drifting"), "acceptance")
    assert not test.exception
    (message,) = messages(test)
    assert "KeyError" in message
    assert "\\*such\\*" in message


def test_an_unforeseen_error_of_one_run_leaves_the_table_of_all(
    app: Start, library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("driftscope.app.loading.digest", lambda run, part: 1 / 0)
    monkeypatch.setattr("driftscope.app.loading.stored", lambda signature: None)
    shutil.copytree(library / "steady", tmp_path / "one")
    shutil.copytree(library / "steady", tmp_path / "two")
    # What another test found out about these texts does not hold for texts of another time.
    os.utime(next((tmp_path / "two" / "shards" / "clean").iterdir()))
    test = app(tmp_path, run="one").run()
    table = test.dataframe[0].value.set_index("run")
    assert "ZeroDivisionError" in table.loc["two", "verdict"]
    assert test.title[0].value == "one"
    assert not messages(test)


def test_new_run_shows_the_command_that_it_will_run(
    app: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "--evil").mkdir()
    (tmp_path / "--evil" / "model.safetensors").write_bytes(b"")
    started: list[tuple[list[str], Path]] = []
    monkeypatch.setattr(jobs, "start", lambda words, folder, **_: started.append((list(words), folder)))
    test = app(page="new_run")
    assert test.button[0].disabled
    test.text_input(key="new-checkpoint").set_value("--evil").run()
    test.multiselect(key="new-probes").set_value(["norms", "pin"]).run()
    test.number_input(key="new-depth").set_value(4).run()
    assert test.code[0].value == (
        "driftscope probe --probes norms,pin --depth 4 --max-new-tokens 128 --out=runs/--evil -- --evil"
    )
    assert "chain passes of 4 steps" in words(test), "no run tells how long one takes here"
    test.button[0].click().run()
    ((words_, folder),) = started
    assert words_[-2:] == ["--", "--evil"]
    assert folder == Path("runs/--evil")


def test_a_folder_in_use_is_refused(app: Start, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rights.FOLDERS, json.dumps([str(library)]))
    (library / "weights.safetensors").write_bytes(b"")
    test = app(library / "steady", page="new_run")
    checkpoint = str(library / "weights.safetensors")
    test.text_input(key="new-checkpoint").set_value(checkpoint).run()
    test.text_input(key=f"new-out-{checkpoint}").set_value(str(library / "steady")).run()
    (message,) = messages(test)
    assert "exists" in message
    assert next(button for button in test.button if button.label == "Measure").disabled
    assert not jobs.all_jobs()


@pytest.mark.parametrize("probe", ["cost", "noise", "clean"])
def test_a_damaged_shard_is_left_out_and_the_rest_is_shown(
    app: Start, library: Path, tmp_path: Path, probe: str
) -> None:
    shutil.copytree(library / "drifting", tmp_path / "hurt")
    shard = next(iter(sorted((tmp_path / "hurt" / "shards" / probe).iterdir())))
    file = sorted(shard.glob("*.parquet"))[0]
    whole = file.read_bytes()
    file.unlink()
    file.write_bytes(whole[: len(whole) // 2])
    test = app(tmp_path, run="hurt")
    for page in PAGES:
        go(test, page)
        assert not test.exception, page
        assert not messages(test), page
        if page not in ("compare", "new_run", "training"):
            assert any(f"{probe}/{shard.name}" in text for text in warned(test)), page
    go(test, "overview")
    assert "would be without drift: drift costs" in words(test)


def test_a_damaged_run_is_not_what_an_address_without_a_run_opens(app: Start, library: Path, tmp_path: Path) -> None:
    for name in ("steady", "drifting"):
        shutil.copytree(library / name, tmp_path / name)
    for name in ("steady", "drifting"):
        for shard in (tmp_path / name / "shards" / "clean").iterdir():
            os.utime(shard)
    first = app(tmp_path).query_params["run"]
    first = first[0] if isinstance(first, list) else first
    file = next((tmp_path / first / "shards" / "clean").glob("*/anchors.parquet"))
    file.unlink()
    file.write_bytes(b"PAR1 no")
    now = app(tmp_path).query_params["run"]
    assert (now[0] if isinstance(now, list) else now) != first
