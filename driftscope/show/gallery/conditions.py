"""Pictures of the probes that change the conditions of a chain, its depth or its text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from driftscope.show.charts import depth, layers, length, noise, pin, template
from driftscope.show.frames import probes
from driftscope.show.gallery.picture import INTERVALS, Picture, View
from driftscope.show.gallery.tables import figures_table


def noise_pictures(view: View) -> Iterator[Picture]:
    """Dose-response, KL and flips."""
    frame, halves = probes.noise(view.runs), probes.half_points(view.runs)
    if frame.empty:
        return
    whole = frame[frame["step"] == 0]
    said = halves[halves["quantity"] == "anchor_mean_kept"]
    yield Picture(
        "noise-dose",
        "noise",
        "Length kept under noise",
        "Acceptance length as a share of the undisturbed one, by the noise's size in units of the row's RMS (square-root scale); "
        f"a cross marks where half is lost; {INTERVALS}.",
        noise.dose(frame, halves),
        figures_table(whole[whole["quantity"].str.endswith("_kept")], ["site", "alpha"], "quantity"),
        tuple(_half(row) for row in said.itertuples()),
    )
    for quantity, title, about in (
        ("kl", "KL by step", "KL divergence from the undisturbed draft, in nats"),
        ("flips", "Flips by step", "Share of top tokens that the noise changes"),
    ):
        if (frame["quantity"] == quantity).any():
            steps = frame[(frame["quantity"] == quantity) & (frame["step"] > 0)]
            yield Picture(
                f"noise-{quantity}",
                "noise",
                title,
                f"{about}, fed with the text, by size of the noise in units of the row's RMS (alpha); {INTERVALS}.",
                noise.moved(frame, quantity),
                figures_table(steps, ["site", "alpha"], "step", intervals=False, counts=False),
            )


def _half(row: Any) -> str:
    """Where half of the length is lost, or on which side of the levels that were tried."""
    told = {
        "beyond the range": "less than half of the length is lost at every alpha that was tried",
        "below the range": "more than half of the length is lost at every alpha that was tried",
    }
    said = told.get(row.said, f"half of the length is lost at alpha {row.said}")
    return f"{row.run}, {noise.SITES.get(row.site, row.site)}: {said}"


def pin_pictures(view: View) -> Iterator[Picture]:
    """Excess with the size held, and its price."""
    frame = probes.pin(view.runs)
    if frame.empty:
        return
    steps = frame[frame["quantity"] == "excess"]
    yield Picture(
        "pin-excess",
        "pin",
        "Excess with the size held",
        "Excess on self-generated tokens, free and with the RMS pinned from step 2 on. A pin at inference is a diagnostic, not "
        "a fix: the drafter was not trained under it.",
        pin.excess(frame),
        figures_table(steps, ["step"], "condition", form="+.3f", counts=False),
        tuple(
            f"{run}, {pin.CONDITIONS.get(name, name)}: {text}" for run, name, text in probes.pin_sentences(view.runs)
        ),
    )
    whole = frame[frame["quantity"].isin(["share_from_magnitude", "length_kept"]) & (frame["condition"] != "free")]
    if len(whole):
        yield Picture(
            "pin-effects",
            "pin",
            "What the pin removes and what it costs",
            "Share of the excess per step that is gone with the size held; acceptance length kept under the pin.",
            pin.effects(frame),
            figures_table(whole, ["condition"], "quantity", form=".1%", counts=False),
        )


def depth_pictures(view: View) -> Iterator[Picture]:
    """Agreement, rank and growth to the horizon."""
    frame = probes.depth(view.runs)
    if frame.empty:
        return
    for name, quantities, title, about, chart, form in (
        (
            "depth-agreement",
            ["agreement", "conditional"],
            "Agreement to the horizon",
            "Share of top tokens that are the target's, fed with the text at every step; and conditional acceptance. The rule "
            "marks where agreement falls under half of step 1's.",
            depth.agreement(frame, probes.collapses(view.runs)),
            ".3f",
        ),
        (
            "depth-rank",
            ["rank"],
            "Rank of the target's token",
            "Geometric mean of its rank among the draft logits, log scale; 1 is the top.",
            depth.rank(frame),
            ".3g",
        ),
        (
            "depth-growth",
            ["growth"],
            "Growth to the horizon",
            "RMS of the carried state over step 1's, log scale.",
            depth.growth(frame),
            ".2f",
        ),
    ):
        rows = frame[frame["quantity"].isin(quantities)]
        if len(rows):
            rows = rows.assign(column=rows["quantity"] + ", " + rows["feed"] + "-fed")
            yield Picture(
                name, "depth", title, about, chart, figures_table(rows, ["step"], "column", form=form, counts=False)
            )


def layers_pictures(view: View) -> Iterator[Picture]:
    """Likeness to the target."""
    frame = probes.layers(view.runs)
    if frame.empty:
        return
    cka = frame[frame["quantity"] == "cka"]
    best = cka.loc[cka.groupby(["run", "step", "row"])["mean"].idxmax()]
    said = tuple(f"{run}: {text}" for run, text in probes.layer_sentences(view.runs))
    yield Picture(
        "layers-best",
        "layers",
        "What a step looks like",
        f"Highest likeness of the carry to any boundary of the target, at three rows; {INTERVALS}.",
        layers.best(frame),
        figures_table(best, ["step"], "row", counts=False),
        said,
    )
    yield Picture(
        "layers",
        "layers",
        "Likeness by boundary",
        "Linear CKA of the carry and the target's residual stream, fed with the text.",
        layers.likeness(frame),
        figures_table(cka, ["row", "step"], "boundary", form=".2f", intervals=False, counts=False),
    )


def template_pictures(view: View) -> Iterator[Picture]:
    """Other ways to wrap a prompt."""
    frame = probes.template(view.runs)
    if frame.empty:
        return
    yield Picture(
        "template",
        "template",
        "Against the regular template",
        f"On the same prompts: acceptance length kept, growth relative to the regular one, change of the excess; {INTERVALS}.",
        template.matrix(frame),
        figures_table(frame, ["condition"], "quantity", forms={"length_kept": ".1%"}),
        tuple(f"{run}, {text}" for run, text in probes.template_sentences(view.runs)),
    )


def length_pictures(view: View) -> Iterator[Picture]:
    """Long texts and windows."""
    frame = probes.length(view.runs)
    if frame.empty:
        return
    rows = frame[frame["quantity"] == "anchor_mean"].rename(columns={"length": "tokens"})
    yield Picture(
        "length",
        "length",
        "Acceptance by length of the text",
        f"Accepted tokens a chain, without the bonus token, under full attention and under windows; {INTERVALS}.",
        length.by_length(frame),
        figures_table(rows, ["tokens"], "policy", form=".2f", counts=False),
        tuple(f"{run}: {text}" for run, text in probes.length_sentences(view.runs)),
    )
    drift = frame[frame["quantity"] == "excess"].rename(columns={"length": "tokens"})
    if len(drift):
        yield Picture(
            "length-excess",
            "length",
            "Excess by length of the text",
            f"Attention on self-generated tokens beyond no drafting, at the last step; {INTERVALS}.",
            length.by_length(frame, "excess"),
            figures_table(drift, ["tokens"], "policy", form="+.3f", counts=False),
        )
