"""Charts as files: SVG and PNG without a browser, and the scripts that draw them in one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Literal

import altair as alt
import vl_convert

from driftscope.show.charts.theme import ThemeName, spec, theme

ImageFormat = Literal["svg", "png"]

_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.split(".")[:2]).removeprefix("v")


def svg(chart: Any, look: ThemeName = "light") -> str:
    """The chart as SVG text."""
    return svg_of(spec(chart), look)


def svg_of(plain: dict[str, Any], look: ThemeName = "light") -> str:
    """The same from a specification."""
    return str(vl_convert.vegalite_to_svg({**plain, "config": theme(look)}, vl_version=_VEGA_LITE))


def png(chart: Any, look: ThemeName = "light", scale: float = 2.0) -> bytes:
    """The chart as a PNG of `scale` pixels per unit."""
    return png_of(spec(chart), look, scale)


def png_of(plain: dict[str, Any], look: ThemeName = "light", scale: float = 2.0) -> bytes:
    """The same from a specification."""
    dressed = {**plain, "config": theme(look)}
    return bytes(vl_convert.vegalite_to_png(dressed, scale=scale, vl_version=_VEGA_LITE))


def save(chart: Any, path: str | Path, look: ThemeName = "light", scale: float = 2.0) -> Path:
    """Write the chart; the file's ending, .svg or .png, says how. Raises ValueError for another ending."""
    file = Path(path)
    if file.suffix == ".svg":
        file.write_text(svg(chart, look), encoding="utf-8")
    elif file.suffix == ".png":
        file.write_bytes(png(chart, look, scale))
    else:
        raise ValueError(f"{file} ends in neither .svg nor .png")
    return file


@functools.cache
def browser_scripts() -> str:
    """Vega, Vega-Lite and vega-embed as one script that defines `vegaEmbed` and asks nothing of a network."""
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", _VEGA_LITE))
