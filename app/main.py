"""Entry point of the app, for `streamlit run`; `driftscope app` starts it with its settings."""

from __future__ import annotations

import logging

import streamlit as st

from driftscope.app import look, shell
from driftscope.errors import DriftscopeError

# File, title and icon of every page.
SECTIONS: dict[str, list[tuple[str, str, str]]] = {
    "Drift": [
        ("overview", "Overview", "dashboard"),
        ("norms", "Norms", "trending_up"),
        ("attention", "Attention", "visibility"),
        ("noise", "Noise", "graphic_eq"),
        ("acceptance", "Acceptance", "check_circle"),
        ("robustness", "Robustness", "shield"),
        ("compare", "Compare", "compare_arrows"),
        ("tokens", "Tokens", "notes"),
    ],
    "Checkpoint": [("checkpoint", "Checkpoint", "inventory_2"), ("new_run", "New run", "play_circle")],
}
# Pages that choose runs themselves, or none.
WITHOUT_RUN = ("compare", "new_run")


def main() -> None:
    """Navigation, the choice of a run, and the page; whatever goes wrong is a message."""
    st.set_page_config("driftscope", page_icon=look.ICON, layout="wide")
    look.apply()
    pages = {
        section: [
            st.Page(
                f"views/{name}.py", title=title, icon=f":material/{icon}:", url_path=name, default=name == "overview"
            )
            for name, title, icon in entries
        ]
        for section, entries in SECTIONS.items()
    }
    page = st.navigation(pages, expanded=True)
    try:
        name = page.url_path or "overview"
        if name in WITHOUT_RUN or shell.choose_run():
            page.run()
    except DriftscopeError as error:
        st.error(shell.plain(error), icon=":material/error:")
    except Exception as error:
        logging.getLogger("driftscope").exception("page %s", page.title)
        st.error(
            f"This page could not be drawn from this run: {type(error).__name__}: {shell.plain(error)}. The terminal that"
            " the app was started from shows where.",
            icon=":material/error:",
        )


if __name__ == "__main__":
    main()
