"""`driftscope app`: how Streamlit is started."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftscope.app import rights
from driftscope.app.hosts import HOSTS
from driftscope.app.library import PATHS
from driftscope.cli import app
from driftscope.commands import app as command


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines that would have run Streamlit."""
    found: list[list[str]] = []
    for name in (PATHS, HOSTS, rights.FOLDERS, rights.STARTING, rights.TOKEN):
        monkeypatch.setenv(name, "[]")
    monkeypatch.setattr(command, "_run", lambda arguments: found.append(arguments) or 0)
    return found


def test_it_listens_here_only_and_tells_nobody(started: list[list[str]], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["app", str(tmp_path), "--port", "8600"])
    assert result.exit_code == 0, result.output
    (arguments,) = started
    assert arguments[:2] == ["streamlit", "run"]
    assert Path(arguments[2]).is_file()
    assert "--server.address=127.0.0.1" in arguments
    assert "--server.port=8600" in arguments
    assert "--browser.gatherUsageStats=false" in arguments
    assert json.loads(os.environ[PATHS]) == [str(tmp_path)]
    assert "warning" not in result.output


def test_it_opens_no_window_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    for display, headless in (("", "true"), (":0", "false")):
        monkeypatch.setenv("DISPLAY", display)
        assert f"--server.headless={headless}" in command.streamlit_arguments(8501, "127.0.0.1")


def test_another_address_is_said_to_be_open(started: list[list[str]]) -> None:
    result = CliRunner().invoke(app, ["app", "--host", "0.0.0.0"])
    assert "--server.address=0.0.0.0" in started[0]
    assert "everybody who can reach 0.0.0.0:8501" in result.output
    assert "starting new ones is off" in result.output
    assert os.environ[rights.STARTING] == "no"


def test_starting_from_elsewhere_takes_a_token(started: list[list[str]], tmp_path: Path) -> None:
    words = ["app", "--host", "192.168.0.7", "--allow-start", "--allow-host", "box.lan", "--files", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert os.environ[rights.STARTING] == "token"
    token = os.environ[rights.TOKEN]
    assert len(token) >= 32
    assert f"http://192.168.0.7:8501/?token={token}" in result.output
    assert json.loads(os.environ[HOSTS]) == ["localhost", "127.0.0.1", "::1", "192.168.0.7", "box.lan"]
    assert json.loads(os.environ[rights.FOLDERS]) == [str(tmp_path)]
    assert token not in " ".join(started[0]), "a command line is seen by everybody on the machine"


def test_here_starting_takes_none(started: list[list[str]]) -> None:
    CliRunner().invoke(app, ["app", "--allow-start"])
    assert os.environ[rights.STARTING] == "yes"
    assert os.environ[rights.TOKEN] == ""


def test_a_folder_that_is_not_there_is_named(started: list[list[str]]) -> None:
    result = CliRunner().invoke(app, ["app", "no/such"])
    assert result.exit_code == 2
    assert "no/such: no such folder" in result.output
    assert not started


def test_every_option_is_one_that_streamlit_has() -> None:
    from streamlit import config

    for argument in command.streamlit_arguments(8501, "127.0.0.1")[3:]:
        config.get_option(argument.removeprefix("--").partition("=")[0])
