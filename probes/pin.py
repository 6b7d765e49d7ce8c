"""Pin: how much of the drift onto self-generated tokens does the magnitude of the carried state cause?

From step 2 on the state is rescaled to the RMS of the anchor's own fused input, or to the RMS that the carry had after step 1;
or the chain's keys are rescaled to the mean RMS of the prompt's keys of their key/value head. A pin at inference is a
diagnostic, not a fix: the drafter was not trained under it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftscope.figures.pin import pin_figures, pin_rows, pin_sentences
from driftscope.probes.base import Variant
from driftscope.probes.record import Caption, Figures, Layout, Record

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from driftscope.chain.baseline import PrefixPass
    from driftscope.chain.interventions import Intervention
    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Subject
    from driftscope.runs.folder import RunFolder

FREE = "pin/free"
PINS = {
    "pin/fused": "state at the RMS of the anchor's fused input",
    "pin/step1": "state at the RMS of the carry after step 1",
    "pin/keys": "keys of the chain at the mean RMS of the prompt's keys",
}
QUANTITIES = ("rms/state", "rms/carry")


def figures(run: RunFolder, depth: int | None) -> Figures:
    return pin_figures(run.table("steps", "pin"), run.table("heads", "pin"))


RECORD = Record(
    figures=figures,
    about={
        "caveat": "what a pin is not",
        "drift": "whether there is a drift to explain",
        "free": "the undisturbed chains",
        "pins": "by pin: excess, its slope, the share of the slope that is gone, the length kept",
    },
    rows=pin_rows,
    axes=("condition", "step", "quantity"),
    sentences=pin_sentences,
    heading="Pin: how much of the drift does the size of the carried state cause?",
    pictures=(
        Caption(
            "pin-excess",
            "Excess with the size held",
            "Excess on self-generated tokens, free and with the RMS pinned from step 2 on. A pin at inference is a diagnostic,"
            " not a fix: the drafter was not trained under it.",
            "pin",
            table=Layout(("step",), "condition", form="+.3f", where={"quantity": "excess"}, counts=False),
        ),
        Caption(
            "pin-effects",
            "What the pin removes and what it costs",
            "Share of the excess per step that is gone with the size held; acceptance length kept under the pin.",
            "pin",
            {"effects": True},
            Layout(("condition",), form=".1%", counts=False),
        ),
    ),
    page="noise",
)


@dataclass(frozen=True)
class PinProbe:
    """Drafted chains, free and under each pin."""

    name: str = "pin"
    question: str = "How much of the drift does the magnitude of the carried state cause?"
    shard: str = "pin"
    record = RECORD
    needs_carry = True

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        pins = [Variant(name, "intervention", {"pin": about, "first_step": 2}) for name, about in PINS.items()]
        return [Variant(FREE, "clean", {}), *pins]

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        import pandas as pd

        from driftscope.runs.rows import head_rows, step_rows

        free = subject.clean("drafted")
        heads, steps = [], []
        for name in (FREE, *PINS):
            chains = free if name == FREE else subject.chains("drafted", interventions=pins(name, subject, free))
            heads.append(head_rows(subject, name, "drafted", chains))
            steps.append(step_rows(subject, name, "drafted", chains, QUANTITIES))
        return {"heads": pd.concat(heads, ignore_index=True), "steps": pd.concat(steps, ignore_index=True)}

    def cost(self, depth: int) -> float:
        return 1.0 + len(PINS)


def pins(name: str, subject: Subject, free: list[dict[str, Tensor]]) -> list[Intervention]:
    """The interventions of a variant, acting from step 2: step 1 has not been carried and stays as it is."""
    from driftscope.chain.interventions import PinHeadRMS, PinRMS

    if name == "pin/keys":
        sizes = prompt_key_rms(subject.passed, subject.text.prompt_length, subject.settings.sinks)
        return [PinHeadRMS(f"layers.{j}.k", size, 2) for j, size in enumerate(sizes)]
    return [PinRMS("state", free[0]["rms/fused" if name == "pin/fused" else "rms/carry"], 2)]


def prompt_key_rms(passed: PrefixPass, prompt_length: int, sinks: tuple[int, ...]) -> list[Tensor]:
    """Per layer, [kv_head]: mean RMS of the keys of the prompt's rows. Sinks, whose keys are unlike others, are left out."""
    import torch

    from driftscope.drafter.norms import rms

    rows = [row for row in range(prompt_length) if row not in sinks] or list(range(prompt_length))
    chosen = torch.tensor(rows, device=passed.prefix[0].keys.device)
    return [rms(layer.keys[:, chosen]).mean(-1) for layer in passed.prefix]


PROBE = PinProbe()
