"""Parameters of variants that anyone may have written."""

from __future__ import annotations

import pandas as pd
import pytest

from driftscope.errors import RunError
from driftscope.figures.length import length_figures
from driftscope.runs.parameters import NOISE, parameters_of


def variants(**texts: str) -> pd.DataFrame:
    rows = [{"variant": name, "kind": "intervention", "parameters": text} for name, text in texts.items()]
    return pd.DataFrame([*rows, {"variant": "clean", "kind": "clean", "parameters": "{}"}])


def test_the_parameters_of_a_kind_by_variant() -> None:
    rows = variants(a='{"site": "state", "steps": "every", "alpha": 1, "seed": 0}')
    assert parameters_of(rows, NOISE, kind="intervention") == {
        "a": {"site": "state", "steps": "every", "alpha": 1, "seed": 0}
    }
    assert set(parameters_of(rows)) == {"a", "clean"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "its parameters are no JSON object"),
        ("[" * 20_000 + "]" * 20_000, "its parameters are no JSON object"),
        ("null", "its parameters are no JSON object"),
        ('{"site": "state", "steps": "every"}', "has no alpha in its parameters"),
        ('{"site": "state", "steps": "every", "alpha": true}', "has no alpha in its parameters"),
        ('{"site": "state", "steps": "every", "alpha": 1e999}', "has no alpha in its parameters"),
        ('{"site": [], "steps": "every", "alpha": 1}', "has no site in its parameters"),
    ],
)
def test_others_are_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(RunError, match=f"variant a:? {reason}"):
        parameters_of(variants(a=text), NOISE, kind="intervention")


def test_lengths_without_all_their_variants_are_refused() -> None:
    plan = pd.DataFrame(
        {
            "variant": ["length/512/window"],
            "kind": ["config"],
            "parameters": ['{"length": 512, "policy": "w", "window": 1}'],
        }
    )
    rows = pd.DataFrame({"variant": ["length/512/window"], "feed": ["drafted"], "prompt": ["a"], "step": [1]})
    with pytest.raises(RunError, match="lacks variants of some lengths"):
        length_figures(rows, rows, rows, plan)
