"""JSON that anyone may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driftscope.errors import DriftscopeError
from driftscope.files.json import json_object


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a.json").write_text(text)
    return tmp_path / "a.json"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "expected a JSON object, found list"),
        ('{"a": ', "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON .*digits"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "not valid JSON .*recursion"),
        ('{"a": ' + "[" * 70 + "1" + "]" * 70 + "}", "JSON of more than 64 levels"),
        ('{"a": [' + "{}," * 1_000_000 + "{}]}", "2,000,.* parts in 3,000,.* characters"),
    ],
)
def test_what_is_no_json_object_of_ours_is_refused_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DriftscopeError, match=reason) as caught:
        json_object(written(tmp_path, text), DriftscopeError)
    assert "\n" not in str(caught.value)


def test_sound_json_is_read_up_to_its_limit(tmp_path: Path) -> None:
    deep = '{"a": ' + "[" * 60 + "1" + "]" * 60 + "}"
    assert list(json_object(written(tmp_path, deep), DriftscopeError)) == ["a"]
    assert json_object(written(tmp_path, "{}"), DriftscopeError, limit=2) == {}
    with pytest.raises(DriftscopeError, match="3 bytes of JSON, more than the 2 allowed"):
        json_object(written(tmp_path, "{ }"), DriftscopeError, limit=2)


def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in ("pipe", "/dev/zero", "."):
        (tmp_path / "a.json").unlink(missing_ok=True)
        (tmp_path / "a.json").symlink_to(place)
        with pytest.raises(DriftscopeError, match="not a regular file"):
            json_object(tmp_path / "a.json", DriftscopeError)
