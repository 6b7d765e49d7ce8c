"""Entry point of the app, for `streamlit run`; `driftscope app` starts it with its settings."""

from __future__ import annotations

import streamlit as st

from driftscope.app import links, look, rights, shell

# File, title and icon of every page.
SECTIONS: dict[str, list[tuple[str, str, str]]] = {
    "Drift": [
        ("overview", "Overview", "dashboard"),
        ("norms", "Norms", "trending_up"),
        ("attention", "Attention", "visibility"),
        ("noise", "Noise", "graphic_eq"),
        ("acceptance", "Acceptance", "check_circle"),
        ("robustness", "Robustness", "shield"),
        ("probes", "Other probes", "science"),
        ("compare", "Compare", "compare_arrows"),
        ("tokens", "Tokens", "notes"),
        ("training", "Training", "model_training"),
    ],
    "Checkpoint": [("checkpoint", "Checkpoint", "inventory_2"), ("new_run", "New run", "play_circle")],
}
# What each page keeps in the address besides the run.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "overview": ("step",),
    "norms": ("unit", "mode", "feed"),
    "attention": ("feed", "parts", "towards", "head"),
    "compare": ("runs", "step"),
    "tokens": ("prompt", "anchor", "step"),
    "training": ("training",),
}
# Pages that choose runs themselves, or none.
WITHOUT_RUN = ("compare", "training", "new_run")
# Reserved for the first page, which is served without a path.
HOME = "home"


def main() -> None:
    """Navigation, the choice of a run, and the page; whatever goes wrong is a message."""
    st.set_page_config("driftscope", page_icon=look.ICON, layout="wide")
    look.apply()
    pages = {
        section: [
            st.Page(
                f"views/{name}.py",
                title=title,
                icon=f":material/{icon}:",
                url_path=HOME if name == "overview" else name,
                default=name == "overview",
            )
            for name, title, icon in entries
        ]
        for section, entries in SECTIONS.items()
    }
    first = next(iter(pages.values()))
    home = first[0]

    def overview() -> None:
        """The first page has no path of its own, and people type one."""
        st.switch_page(home, query_params=st.query_params.to_dict())

    first.append(st.Page(overview, title="Overview", url_path="overview", visibility="hidden"))
    page = st.navigation(pages, expanded=True)
    if page.url_path == "overview":
        page.run()
    name = "overview" if page.url_path in ("", HOME) else page.url_path
    # The token of an address holds for the session.
    rights.may_start()
    links.only(("run", "token", *PARAMETERS.get(name, ())))
    with shell.messages(page.title):
        if (page.url_path or "overview") in WITHOUT_RUN or shell.choose_run():
            page.run()


if __name__ == "__main__":
    main()
