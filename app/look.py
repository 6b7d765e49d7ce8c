"""The look of the pages: light or dark, and the grid in which charts stand."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

import streamlit as st

from driftscope.app import answer_html
from driftscope.show.charts.theme import BACKGROUND, ThemeName

GRID = "grid"
"""Prefix of the keys of containers whose children stand in a grid."""

STREAMLIT_THEME = {
    "theme.primaryColor": "#3b78c4",
    "theme.light.backgroundColor": BACKGROUND["light"],
    "theme.light.secondaryBackgroundColor": "#f4f6f8",
    "theme.dark.primaryColor": "#4a8ee0",
    "theme.dark.backgroundColor": BACKGROUND["dark"],
    "theme.dark.secondaryBackgroundColor": "#1c222b",
}
"""Options of Streamlit, so that charts and page have one background."""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="6" fill="#3b78c4"/>'
    '<path d="M5 25C14 25 19 20 27 6" stroke="#fff" stroke-width="4" fill="none" stroke-linecap="round"/></svg>'
)
"""A rising line. An icon by its name would be fetched from a network."""

_CSS = """
<style>
.stMainBlockContainer { padding: 2.2rem 2rem 3rem; }
[class*="st-key-grid"] { display: grid; grid-template-columns: repeat(auto-fill, minmax(430px, 1fr)); gap: 1rem;
  grid-auto-flow: dense; align-items: stretch; }
[class*="st-key-grid"] > :has(> [class*="st-key-wide"]), [class*="st-key-grid"] > :has(> [class*="st-key-facets"])
  { grid-column: span 2; }
/* Cards of a row are equally tall, and what one can do with a chart stands at their foot. */
[class*="st-key-grid"] > * > [class*="st-key-card"], [class*="st-key-grid"] > * > [class*="st-key-wide"],
[class*="st-key-grid"] > * > [class*="st-key-facets"] { height: 100%; gap: .5rem; }
[class*="st-key-about"] { gap: .5rem; height: 100%; }
:has(> [class*="st-key-about"]) { flex: 1 1 auto; }
:has(> [class*="st-key-files"]) { margin-top: auto; }
[class*="st-key-about"] [data-testid="stMarkdownContainer"] li { font-size: .92rem; margin-bottom: .15rem; }
/* A drawing of several panels is scaled to its card. */
[class*="st-key-wide"] .stElementContainer:has(.stVegaLiteChart), [class*="st-key-wide"] div:has(> .stVegaLiteChart),
[class*="st-key-wide"] div:has(> div > .stVegaLiteChart), [class*="st-key-wide"] .stVegaLiteChart
  { width: 100% !important; max-width: 1060px; }
[class*="st-key-wide"] .stVegaLiteChart svg { width: 100%; height: auto; }
[class*="st-key-facets"] [class*="st-key-panels"] { display: grid; gap: .6rem;
  grid-template-columns: repeat(2, minmax(0, 1fr)); }
[class*="st-key-facets3"] [class*="st-key-panels"] { grid-template-columns: repeat(3, minmax(0, 1fr)); }
@media (min-width: 1700px) {
  .st-key-grid-noise > * { grid-column: span 1 !important; }
  .st-key-grid-noise [class*="st-key-panels"] { grid-template-columns: minmax(0, 1fr) !important; }
  .st-key-grid-linked, .st-key-grid-compare, .st-key-grid-heads { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .st-key-grid-linked > *, .st-key-grid-compare > *, .st-key-grid-heads > * { grid-column: span 1 !important; }
  /* Alone in its section: words beside the drawing. */
  [class*="st-key-grid"] > :only-child:has(> [class*="st-key-wide"]) { grid-column: 1 / -1; }
  [class*="st-key-grid"] > :only-child > [class*="st-key-wide"] { display: grid; gap: .5rem 2rem;
    grid-template-columns: minmax(0, 1060px) minmax(0, 1fr); }
  [class*="st-key-grid"] > :only-child > [class*="st-key-wide"] > :first-child { grid-column: 1 / -1; }
}
@media (max-width: 1150px) {
  [class*="st-key-grid"], [class*="st-key-facets"] [class*="st-key-panels"]
    { grid-template-columns: minmax(0, 1fr) !important; }
  [class*="st-key-grid"] > * { grid-column: span 1 !important; }
}
.st-key-answers { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 600px), 1fr)); }
.st-key-answers > :has(> [class*="st-key-answer"]) { width: 100%; }
.st-key-corners { gap: .6rem; align-items: center; }
.stMain h1 { font-size: 1.6rem; padding: 0 0 .2rem; }
.stMain h2 { font-size: 1.25rem; padding: .6rem 0 .2rem; }
.stMain h3 { font-size: 1.02rem; padding: 0 0 .5rem; }
.facts { width: 100%; border-collapse: collapse; font-size: .875rem; }
.facts td { border-bottom: 1px solid rgba(128, 132, 149, .25); padding: .3rem .6rem .3rem 0; vertical-align: top;
  overflow-wrap: break-word; }
.facts td:last-child { overflow-wrap: anywhere; }
.facts td:first-child { width: 34%; opacity: .75; }
.facts4 td:first-child { width: 22%; }
.facts-many { font-size: .8rem; font-variant-numeric: tabular-nums; }
.facts-many td:first-child { width: auto; }
.facts th { text-align: left; font-weight: 600; padding: .2rem .6rem .3rem 0; }
.st-key-step-figures { gap: .15rem; }
[data-testid="stMetricValue"] { font-size: 1.3rem; }
[data-testid="stMetricLabel"] p { font-size: .8rem; }
</style>
"""


def apply() -> None:
    """Styles of every page."""
    st.html(_CSS)
    st.html(f"<style>{answer_html.CSS}</style>")


def theme_name() -> ThemeName:
    """What the browser shows."""
    return "dark" if st.context.theme.type == "dark" else "light"


def facts(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> None:
    """Names and values below each other, whole: long paths break."""
    above = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    lines = ("".join(f"<td>{_breakable(value)}</td>" for value in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    many = " facts-many" if len(heads) > 4 else ""
    st.html(f'<table class="facts facts{len(heads)}{many}"><tr>{above}</tr>{body}</table>')


def _breakable(text: str) -> str:
    """Long names and paths break behind their marks, not inside words."""
    return re.sub(r"([_./-])", r"\1<wbr>", html.escape(text))


def callout(text: str, colour: str) -> None:
    """A sentence that must be seen first, with a bar of that colour."""
    st.html(
        f'<div style="border-left:6px solid {colour};background:{colour}1f;border-radius:6px;padding:.7rem 1rem">{text}</div>'
    )
