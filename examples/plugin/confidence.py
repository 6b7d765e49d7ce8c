"""Confidence: is the drafter surer of its tokens, step by step, than their acceptance warrants?"""

import numpy as np

from driftscope.probes import Caption, Layout, Record, Variant

VARIANT = "confidence"


def figures(run, depth):
    """Per step: the mean of the highest probability, the share of tokens that are right, and how much the first exceeds the
    second; ratios of sums, with intervals over prompts."""
    from driftscope import stats

    rows = run.table("steps", "confidence")
    steps = []
    for step in range(1, int(rows["step"].max()) + 1):
        own = rows[rows["step"] == step]
        sure, right, anchors = (np.asarray(own[name], dtype=float) for name in ("sum/top_prob", "matches", "anchors"))
        figure = stats.ratio_of_sums(np.stack([sure, right, sure - right], -1), anchors[:, None])
        names = ("confidence", "right", "excess")
        found = {name: figure.at(place).to_dict() for place, name in enumerate(names) if figure.at(place)}
        steps.append({"step": step, "anchors": int(anchors.sum()), **found})
    return {"steps": steps}


def rows(figures):
    """A row for every figure: its axes, and mean, low and high."""
    for step in figures["steps"]:
        count = {"step": step["step"], "count": step["anchors"], "counted": "anchors"}
        yield from ({**count, "quantity": name, **part} for name, part in step.items() if isinstance(part, dict))


def sentences(figures):
    last = figures["steps"][-1]
    told = f"at step {last['step']} the drafter is {last['excess']['mean']:+.2f} surer than it is right"
    return [("", told)] if "excess" in last else []


def fake(prompt, number):
    """What measure stores of one prompt, without a model."""
    from driftscope.probes.fakes import fake_steps

    return {"steps": fake_steps(prompt, number, VARIANT, acceptance=0.6, top_prob=0.8)}


class Confidence:
    name = shard = "confidence"
    question = "Is the drafter surer of its tokens than their acceptance warrants?"
    record = Record(
        figures=figures,
        about={"steps": "per step: the highest probability, the share that is right, and their difference"},
        rows=rows,
        axes=("step", "quantity"),
        sentences=sentences,
        pictures=(
            Caption(
                "confidence-steps",
                "Confidence and acceptance",
                "Mean of the drafter's highest probability, share of its tokens that are right, and their difference, by step.",
                table=Layout(("step",)),
            ),
        ),
        fake=fake,
    )

    def boundaries(self, pair):
        return ()

    def variants(self, pair):
        return [Variant(VARIANT, "clean", {})]

    def measure(self, subject):
        from driftscope.runs.rows import step_rows

        chains = subject.clean("drafted")  # shared with the other probes
        return {"steps": step_rows(subject, VARIANT, "drafted", chains, ["top_prob"])}

    def cost(self, depth):
        return 1.0


PROBE = Confidence()
