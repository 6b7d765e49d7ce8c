"""The answer as HTML: the budget of one run, and the four runs of carry x FC-norm. Every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from driftscope.app.severity import Severity
from driftscope.app.square import Square
from driftscope.show.cost import WHY
from driftscope.show.run_marks import Mark
from driftscope.show.tables import NOT_MEASURED, interval_text

_ACCEPTED = "#0072B2"
_PATHS = {
    "state": ("the carried state", "#D55E00"),
    "pattern": ("attention", "#E69F00"),
    "values": ("values of its own rows", "#CC79A7"),
}
_REASONS = {
    "state": "#D55E00",
    "pattern": "#E69F00",
    "values": "#CC79A7",
    "several": "#A3210B",
    "block": "#A3210B",
    "drafter": "#8c8c8c",
    "target_undecided": "#b5b5b5",
    "vocabulary": "#d3d3d3",
}
_FORMS = {"x": (".2f", "x"), "tokens": ("+.2f", " tokens"), "share": (".3f", ""), "alpha": (".2f", "")}
_JUDGED = {"better": ("#0072B2", "▲ better"), "worse": ("#D55E00", "▼ worse"), "": ("transparent", "")}
_ROWS = ("pre-norm carry", "post-norm carry")
_COLUMNS = ("without FC-norm", "with FC-norm")


def run_card(headline: str, cause: str, cost: Mapping[str, Any] | None, found: Severity) -> str:
    """The verdict of one run, and where its tokens go."""
    parts = [
        f'<div class="answer" style="border-left-color:{found.colour}">',
        f'<div class="answer-line">{html.escape(headline)}</div>',
        budget(cost) if cost else "",
        f'<div class="answer-cause">{html.escape(cause)}</div>' if cause else "",
        "</div>",
    ]
    return "".join(parts)


def budget(cost: Mapping[str, Any]) -> str:
    """Two bars: accepted and what drift takes of the undrifted length; and why chains end, drift beside the other reasons."""
    actual, undrifted = cost["actual"]["mean"], cost["undrifted"]["mean"]
    paths = {name: figure for name, figure in cost["paths"].items() if name in _PATHS}
    whole = max(undrifted, actual + sum(max(figure["mean"], 0.0) for figure in paths.values()), 1e-9)
    segments = [("accepted", _ACCEPTED, actual / whole, _figure(cost["actual"], ".2f"))]
    if paths:
        for name, figure in paths.items():
            words, colour = _PATHS[name]
            segments.append(
                (f"lost through {words}", colour, max(figure["mean"], 0.0) / whole, _figure(figure, "+.3f"))
            )
    else:
        segments.append(
            (
                "cost of drift",
                _REASONS["several"],
                max(cost["cost"]["mean"], 0.0) / whole,
                _figure(cost["cost"], "+.3f"),
            )
        )
    share = f", {cost['share']['mean']:.0%} of it" if cost["cost"]["mean"] > 0 and cost.get("share") else ""
    title = (
        f"Tokens per anchor of {cost['depth']} drafted: accepted {_figure(cost['actual'], '.2f')}, undrifted"
        f" {_figure(cost['undrifted'], '.2f')}; cost of drift {_figure(cost['cost'], '+.2f')}{share}"
    )
    rows = [_bar(title, segments)]
    reasons = {name: figure for name, figure in cost["reasons"].items() if figure.get("mean") is not None}
    if reasons:
        drift = sum(figure["mean"] for name, figure in reasons.items() if name in (*_PATHS, "several", "block"))
        rejected = f" {cost['rejected']:,} rejected chains" if cost.get("rejected") else " the rejected chains"
        segments = [
            (WHY[name], _REASONS[name], figure["mean"], _figure(figure, ".0%")) for name, figure in reasons.items()
        ]
        rows.append(_bar(f"Why{rejected} end: {drift:.0%} through drift, {1 - drift:.0%} for other reasons", segments))
    return "".join(rows)


def square_card(found: Square, marks: Sequence[Mark], chosen: int | None) -> str:
    """The 2 x 2, better and worse against the corner without either."""
    cells = []
    for place, (name, mark) in enumerate(zip(found["names"], marks, strict=True)):
        lines = "".join(_line(quantity, place) for quantity in found["quantities"])
        picked = ' class="picked"' if place == chosen else ""
        cells.append(
            f'<td{picked}><div class="corner">{mark.svg()} {html.escape(name)}</div><table>{lines}</table></td>'
        )
    heads = "".join(f"<th>{text}</th>" for text in _COLUMNS)
    rows = "".join(
        f"<tr><th>{row}</th>{cells[2 * place]}{cells[2 * place + 1]}</tr>" for place, row in enumerate(_ROWS)
    )
    counted = f"{found['prompts']} of {found['of']} prompts have positions that count, {found['depth']} steps"
    about = (
        f"{counted}; small figures are 95% intervals over prompts. Blue and ▲ is better than without either switch, orange and ▼"
        " worse, no colour: cannot be told apart."
    )
    return (
        f'<div class="answer" style="border-left-color:{_ACCEPTED}"><div class="answer-line">{html.escape(found["headline"])}'
        f'</div><table class="square"><tr><th></th>{heads}</tr>{rows}</table>'
        f'<div class="answer-about">{html.escape(about)}</div></div>'
    )


def _line(quantity: Mapping[str, Any], place: int) -> str:
    """One figure of a corner."""
    form, unit = _FORMS.get(quantity["unit"], (".3g", ""))
    value, judged = quantity["values"][place], quantity["judged"][place]
    colour, words = _JUDGED[judged]
    label = f'<td title="{html.escape(quantity["label"], quote=True)}">{html.escape(quantity["short"])}</td>'
    if value is None:
        return f"<tr>{label}<td>{NOT_MEASURED}</td><td></td></tr>"
    form = ".2f" if quantity["name"] == "served" else form
    figure = interval_text(value["mean"], value["mean"], value["mean"], form, False)
    ends = "" if value["low"] is None else f"{_number(value['low'], form)} to {_number(value['high'], form)}"
    tint = f' style="background:{colour}2e;border-left:3px solid {colour}"' if judged else ""
    return (
        f"<tr{tint}>{label}<td><b>{figure}{html.escape(unit)}</b> <small>{ends}</small></td>"
        f'<td class="judged">{words}</td></tr>'
    )


def _bar(title: str, segments: Sequence[tuple[str, str, float, str]]) -> str:
    """Parts of a whole as one bar, with a legend that holds every figure."""
    drawn = "".join(
        f'<span title="{html.escape(f"{words}: {figure}", quote=True)}" style="width:{100 * min(max(share, 0.0), 1.0):.3f}%;'
        f'background:{colour}"></span>'
        for words, colour, share, figure in segments
        if share > 0
    )
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(words)} <b>{html.escape(figure.partition(" (")[0])}</b></span>'
        for words, colour, _, figure in segments
    )
    return f'<div class="bar-title">{html.escape(title)}</div><div class="bar">{drawn}</div><div class="bar-legend">{legend}</div>'


def _figure(figure: Mapping[str, Any], form: str) -> str:
    low, high = (float("nan") if figure.get(end) is None else figure[end] for end in ("low", "high"))
    return interval_text(figure["mean"], low, high, form)


def _number(value: float, form: str) -> str:
    return interval_text(value, value, value, form, False)


CSS = """
.answer { border-left: 6px solid; border-radius: 6px; padding: .7rem 1rem; background: rgba(128,132,149,.09); height: 100%; }
.answer-line { font-size: 1.05rem; font-weight: 600; }
.answer-cause { padding-top: .5rem; font-size: .92rem; }
.answer-about { padding-top: .4rem; font-size: .8rem; opacity: .8; }
.bar-title { font-size: .85rem; padding: .7rem 0 .2rem; }
.bar { display: flex; height: 1.25rem; border-radius: 3px; overflow: hidden; background: rgba(128,132,149,.25); }
.bar span { display: block; height: 100%; box-shadow: inset -1px 0 rgba(255,255,255,.7); }
.bar-legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .8rem; padding-top: .25rem; }
.bar-legend i { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .3em; }
.square { width: 100%; border-collapse: separate; border-spacing: .4rem; font-size: .82rem; table-layout: fixed; }
.square th { font-weight: 600; text-align: left; font-size: .8rem; opacity: .8; }
.square > tbody > tr > th:first-child { width: 4.2rem; }
.square > tbody > tr > td { border: 1px solid rgba(128,132,149,.35); border-radius: 5px; padding: .35rem .5rem;
  vertical-align: top; }
.square td.picked { border: 2px solid currentColor; }
.square td table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.square td td { padding: .05rem .3rem; }
.square small { opacity: .75; }
.square .judged { text-align: right; white-space: nowrap; }
.square .corner { font-weight: 600; }
"""
"""Style of both cards."""
