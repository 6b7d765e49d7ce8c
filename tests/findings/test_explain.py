"""The pages of the codes: there for every code, and naming only what exists."""

from __future__ import annotations

import json
import re

import pytest
import typer
from typer.testing import CliRunner

from driftscope.cli import app
from driftscope.findings import definitions
from driftscope.findings.registry import UnknownCodeError, definition, rules, thresholds
from driftscope.probes import SHIPPED

RUNNER = CliRunner()
ROOT = typer.main.get_command(app)


def page(code: str, width: int = 100) -> str:
    result = RUNNER.invoke(app, ["explain", code], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.stdout


def flags(command: object) -> set[str]:
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}  # type: ignore[attr-defined]
    return own.union(*(flags(child) for child in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("code", definitions())
def test_every_code_has_a_page(code: str) -> None:
    text = page(code)
    about = definition(code)
    assert text.startswith(f"{code}  {about.title}")
    for heading in ("What it means", "How it is measured", "What it does not say", "What to try"):
        assert heading in text
    for name in about.thresholds:
        assert name in text
    assert max(map(len, page(code, 80).splitlines())) <= 80


@pytest.mark.parametrize("code", definitions())
def test_pages_name_only_flags_commands_probes_and_thresholds_that_exist(code: str) -> None:
    text = " ".join(page(code).split())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= flags(ROOT)
    for command in re.findall(r"driftscope ([a-z]+)(?= [A-Z`-])", text):
        assert command in ROOT.commands  # type: ignore[attr-defined]
    for probes in re.findall(r"--probes ([a-z,]+)", text):
        assert set(probes.split(",")) <= set(SHIPPED)
    assert set(definition(code).thresholds) <= {threshold.name for threshold in thresholds().values()}


def test_every_rule_has_a_code_and_every_threshold_a_use() -> None:
    drift_and_data = {code for code, about in definitions().items() if about.kind not in ("checkpoint", "engine")}
    assert set(rules()) == drift_and_data
    used = {name for about in definitions().values() for name in about.thresholds}
    assert used == {threshold.name for threshold in thresholds().values()}


def test_the_list_has_every_code() -> None:
    text = RUNNER.invoke(app, ["explain"]).stdout
    assert re.findall(r"^(DS\d+)  ", text, flags=re.M) == list(definitions())
    assert [about["code"] for about in json.loads(RUNNER.invoke(app, ["explain", "--json"]).stdout)] == list(
        definitions()
    )


def test_a_code_in_any_case_and_an_unknown_one() -> None:
    assert page("ds101") == page("DS101")
    result = RUNNER.invoke(app, ["explain", "DS10x"])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0].startswith("error: there is no code DS10x; near it: DS")
    with pytest.raises(UnknownCodeError, match="there are DS101"):
        definition("nonsense")


def test_a_changed_threshold_is_said_to_be(tmp_path: object) -> None:
    file = f"{tmp_path}/limits.toml"
    with open(file, "w") as stream:
        stream.write("norm_growth = 1.7")
    text = RUNNER.invoke(app, ["explain", "DS101", "--thresholds", file], env={"COLUMNS": "200"}).stdout
    assert "norm_growth = 1.7" in text
    assert "the default is 1.1" in text
    content = json.loads(RUNNER.invoke(app, ["explain", "DS101", "--json", "--thresholds", file]).stdout)
    assert content["thresholds"]["norm_growth"]["value"] == 1.7
