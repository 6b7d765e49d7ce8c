"""The codes of an engine (DS4xx): what its counters say beside the walk over the run's texts."""

from __future__ import annotations

from driftscope.findings.model import Coded, Definition
from driftscope.findings.registry import register

_MEASURED = (
    "Conditional acceptance by position, as logits, of the engine's counters against the served walk over the run's texts, with the"
    " spread between prompts and between kinds of prompts in both (`--same-prompts`: the same texts, so prompts"
    " cancel); p below .01."
)
_LIMITS = (
    "Greedy serving is taken for granted: at a temperature above 0 an engine accepts by another rule. Counters of warm-up requests,"
    " of other models on the same server, or of trees (topk above 1) are no chain's."
)
_INSPECT = "driftscope inspect CHECKPOINT --target TARGET: how vLLM, SGLang and TensorRT-LLM would read this config."

CODES: tuple[Definition, ...] = (
    Definition(
        "DS401",
        "The engine accepts less from position 1 on",
        meaning="The first drafted token is accepted less often than the drafter, run as this run reads it, would have it. What the"
        " drafter is given is not what it was trained on: the target's features (which layers, in which order), their norms, the"
        " draft vocabulary's map, the embedding, the rotary embedding, or the draft KV of the prompt.",
        measured=_MEASURED,
        limits=_LIMITS,
        advice=(
            _INSPECT,
            "State the layers, rope_theta and the norms in the drafter's config.json: engines guess what is not written.",
            "Serve the run's prompts once each, greedily, and compare with --same-prompts: far smaller differences are seen.",
        ),
        probes=("acceptance",),
        sources=("vllm-project/vllm PR 50170", "sgl-project/sglang PR 25454", "vllm-project/vllm PR 38111"),
    ),
    Definition(
        "DS402",
        "The engine accepts less from a later position on",
        meaning="Position 1 is accepted as often as it should be and a later one is not: the first step gets"
        " what it was trained on,"
        " the steps behind it do not. That is the state carried from step to step (before or after the norm), the positions of the"
        " steps, or the keys and values of the drafted rows.",
        measured=_MEASURED,
        limits=_LIMITS,
        advice=(
            "norm_output in the drafter's config.json says where the state is carried from; it is read at the top level only.",
            "The positions that the drafting steps are given, and whether each step's keys and values are"
            " written where the next reads.",
            _INSPECT,
        ),
        probes=("acceptance",),
        sources=("vllm-project/vllm PR 47448", "sgl-project/SpecForge PR 879", "vllm-project/vllm issue 14649"),
    ),
    Definition(
        "DS403",
        "The engine runs the drafter another way",
        meaning="One other reading of the checkpoint, or one named fault of an engine, predicts the counters,"
        " and the reading of this"
        " run does not.",
        measured=f"{_MEASURED} Every reading that the audit tries is walked over the same texts; those whose likelihood is within a"
        " factor of 20 of the best one tie, and a switch is named only where all that tie are of that switch and the best fits"
        " (p of .05 or more).",
        limits=f"Only readings that were walked can be named, one change at a time. {_LIMITS}",
        advice=(
            "Change the switch in the engine, or write it into the drafter's config.json, serve again, and compare again.",
            "Where the engine is right and the run is wrong: probe again with the switch set (--set), and keep it (driftscope audit"
            " --fix).",
        ),
        probes=("acceptance",),
    ),
    Definition(
        "DS404",
        "The engine accepts more than the walk",
        meaning="The engine's texts are easier for the drafter than the run's, or it reads the checkpoint"
        " better than the run does.",
        measured=_MEASURED,
        limits=f"Texts that loop are easy for any drafter: the run's own share of loops is DS301. {_LIMITS}",
        advice=(
            "Probe with prompts like those that the server answers: driftscope probe CHECKPOINT --prompts FILE.",
            "driftscope audit CHECKPOINT: whether another reading fits the run's own texts better.",
            "Whether the server runs the target of this run, and not a fine-tuned or merged one.",
        ),
        probes=("acceptance",),
    ),
    Definition(
        "DS405",
        "Acceptance is not that of the golden file",
        meaning="A golden file holds what was accepted when the drafter was known to be sound. What is compared"
        " with it accepts less.",
        measured="A run on the same prompts: paired differences by prompt of accepted tokens by position and of the length, with an"
        " interval over prompts. Counters of an engine: as DS401, against the walk that the file holds.",
        limits="A golden file is as good as the run that it was written from, which had to beat its negative controls.",
        advice=(
            "driftscope engine RUN --metrics FILE: which reading of the checkpoint predicts the new counters.",
            "driftscope compare RUN RUN, where both runs are there.",
            "After a change that is meant, write the file anew: driftscope engine RUN --write-golden FILE.",
        ),
        probes=("acceptance",),
    ),
)

register(*(Coded(code) for code in CODES))
