"""One chain in its text: what was drafted, what the target writes, and where each step looks."""

from __future__ import annotations

import math

import pandas as pd
import streamlit as st

from driftscope.app import links, reading, ribbon, token_html
from driftscope.app.cards import escaped
from driftscope.app.library import Entry
from driftscope.app.loading import computed
from driftscope.app.look import theme_name
from driftscope.app.reading import Key, Reading
from driftscope.app.shell import current
from driftscope.runs.schema import DISJOINT_BUCKETS
from driftscope.show.charts.theme import BUCKET_NAMES


def page() -> None:
    """The page."""
    entry = current()
    st.title("Tokens", anchor=False)
    held: list[str] = computed(reading.prompts, [entry])
    if not held:
        st.info(
            "This run holds no text: it was measured by an older driftscope, or nothing is measured yet. Probe the checkpoint"
            " again into another folder to read along.",
            icon=":material/info:",
        )
        return
    found, anchor, step = _choose(entry, held)
    look = theme_name()
    with st.container(border=True, key="ribbon-card"):
        ribbon.show(found, anchor)
        st.caption(escaped(ribbon.legend(found)))
    st.html(token_html.legend(look))
    left, right = st.columns([10, 9], gap="medium")
    with left, st.container(border=True, height=640, key="text"):
        st.html(token_html.text(found, anchor, step, look))
    with right:
        _keys(found, anchor, step)
        _chain(found, anchor)
    st.caption(
        "The chain starts behind the framed token and drafts what follows; under each drafted token stands the target's own"
        " and its rank among the drafter's. A step's keys are rows of the"
        " drafter: a row of the context is marked at the token of its feature, a row of the chain itself at its step."
        " Percentages are shares of the attention of the chosen step, mean over layers and heads; only the eight heaviest keys"
        " are recorded."
    )


def _choose(entry: Entry, held: list[str]) -> tuple[Reading, int, int]:
    """Prompt, anchor and step, kept in the address."""
    info = entry.info
    assert info is not None
    about = {prompt.id: prompt for prompt in info.prompts}
    means: dict[str, float] = computed(reading.mean_lengths, [entry])
    # Those that lose most come first.
    held = sorted(held, key=lambda name: means.get(name, math.inf))
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        prompt = links.choice(
            st.selectbox,
            "Prompt",
            "prompt",
            held,
            format_func=lambda name: _named(name, about[name].category, means.get(name)),
            help="sorted by accepted tokens, those that lose most first",
            width=260,
        )
        found: Reading = computed(reading.reading, [entry], prompt)
        lengths = reading.accepted_lengths(found.chains)
        depth = int(found.chains["step"].max())
        names = [str(anchor) for anchor in found.anchors]
        name = links.chosen("anchor", names)
        place = names.index(name)
        st.button(
            "",
            icon=":material/chevron_left:",
            help="anchor before",
            disabled=not place,
            on_click=links.put,
            args=("anchor", names[max(place - 1, 0)]),
        )
        name = links.choice(
            st.selectbox,
            "Chain behind position",
            "anchor",
            names,
            format_func=lambda name: _anchor(found, int(name), lengths.get(int(name)), depth),
            width=250,
        )
        after = names[min(place + 1, len(names) - 1)]
        st.button(
            "",
            icon=":material/chevron_right:",
            help="next anchor",
            disabled=place + 1 >= len(names),
            on_click=links.put,
            args=("anchor", after),
        )
        steps = [str(number) for number in range(1, depth + 1)]
        step = links.choice(st.segmented_control, "Step", "step", steps)
    return found, int(name), int(step)


def _named(name: str, category: str | None, accepted: float | None) -> str:
    told = name if not category or category in name else f"{name} ({category})"
    return told if accepted is None else f"{told}: {accepted:.2f} accepted"


def _anchor(found: Reading, anchor: int, accepted: int | None, depth: int) -> str:
    told = "not measured" if accepted is None else f"{accepted} of {depth} accepted"
    return f"{anchor + 1}: {_behind(found, anchor)} ({told})"


def _behind(found: Reading, anchor: int) -> str:
    """The token behind which the chain starts."""
    piece = found.text[anchor + 1].strip() if anchor + 1 < len(found.text) else ""
    return repr(piece)


def _keys(found: Reading, anchor: int, step: int) -> None:
    st.subheader(f"Where step {step} looks", anchor=False)
    keys = found.keys(anchor, step)
    chain = found.chain(anchor)
    if not keys:
        st.caption("Not recorded: the target repeats itself here.")
        return
    row = chain[chain["step"] == step].iloc[0]
    masses = {name: row.get(f"mass/{name}") for name in DISJOINT_BUCKETS}
    st.caption(
        " · ".join(
            f"{BUCKET_NAMES[name]} {value:.1%}"
            for name, value in masses.items()
            if value is not None and not pd.isna(value)
        )
    )
    rows = [
        {
            "token": _token(found, chain, key),
            "key": f"own, step {key.step(anchor)}" if key.own else f"position {key.position}",
            "part": BUCKET_NAMES[key.bucket],
            "attention": key.mass,
        }
        for key in keys
    ]
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        column_config={
            "token": st.column_config.TextColumn(width=90),
            "key": st.column_config.TextColumn(width=90),
            "part": st.column_config.TextColumn(width=80),
            "attention": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=110),
        },
    )
    st.caption(f"These {len(rows)} keys hold {sum(key.mass for key in keys):.1%} of the attention of this step.")


def _token(found: Reading, chain: pd.DataFrame, key: Key) -> str:
    """The token of a key; of the chain's own rows what they drafted."""
    if not key.own:
        return token_html.visible(found.text[key.position])
    step = key.step(int(chain["anchor"].iloc[0]))
    return token_html.visible(found.piece(chain["drafted"].iloc[step - 1]))


def _chain(found: Reading, anchor: int) -> None:
    st.subheader("The chain", anchor=False)
    chain = found.chain(anchor)
    rows = []
    for (_, row), state in zip(chain.iterrows(), token_html.states_of(chain), strict=True):
        rows.append(
            {
                "step": int(row["step"]),
                "drafted": token_html.visible(found.piece(row["drafted"])),
                "P(own)": row["top_prob"],
                "": token_html.SIGNS[state],
                "target": token_html.visible(found.piece(row["text"])),
                "rank": token_html.rank_text(row["rank"], state).removeprefix("rank "),
                "P(target)": row["prob"],
            }
        )
    own = st.column_config.NumberColumn(format="percent", width=62, help="what the drafter gives to its own token")
    theirs = st.column_config.NumberColumn(
        format="percent", width=74, help="what the drafter gives to the token that the target writes"
    )
    word = st.column_config.TextColumn(width=82)
    rank = st.column_config.TextColumn(
        width=90,
        help="of the target's token among the drafter's; none outside its vocabulary. Off the path: the chain has already left"
        " the text, and an engine throws this step away",
    )
    columns = {"P(own)": own, "P(target)": theirs, "drafted": word, "target": word, "rank": rank}
    narrow = {"step": st.column_config.NumberColumn(width=38), "": st.column_config.TextColumn(width=24)}
    st.dataframe(pd.DataFrame(rows), hide_index=True, column_config={**columns, **narrow})
    if bool(chain["loop"].iloc[0]):
        st.caption("Here the target repeats itself: left out of every figure but the served length.")


if __name__ == "__main__":
    page()
