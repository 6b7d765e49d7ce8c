"""The codes of the audit: what each names, how it is told, and what to do."""

from __future__ import annotations

from driftscope.findings.model import Coded, Definition
from driftscope.findings.registry import register

_MEASURED = (
    "Text-fed loss against the target's distribution and top-1 agreement of the alternative against the declared value,"
    " per prompt: at step 1, or at the later steps for a change that only enters there."
)
_LIMITS = (
    "Only the listed alternatives were tried, one at a time, the best kept before the next round (greedy). A drafter that"
    " scores no better than its negative controls decides nothing."
)
_RERUN = (
    "Run it so: the flag beside the finding. If acceptance rises, keep it in the config: `driftscope audit --fix OUT`."
)


def _code(
    code: str, title: str, meaning: str, *sources: str, advice: tuple[str, ...] = (), limits: str = ""
) -> Definition:
    return Definition(
        code=code,
        title=title,
        meaning=meaning,
        measured=_MEASURED,
        limits=f"{limits} {_LIMITS}".strip(),
        advice=(_RERUN, *advice),
        probes=("audit",),
        sources=sources,
    )


CODES: tuple[Definition, ...] = (
    _code(
        "DS201",
        "Wrong carry point",
        "The state handed from step to step is taken before the final norm where it was trained after it, or the other way"
        " round. Step 1 is not touched; from step 2 on the drafter reads a state that it has never seen.",
        "sgl-project/SpecForge PR 879",
        "vllm-project/vllm PR 47448",
        "ROCm/ATOM PR 1764",
        advice=("norm_output of SpecForge before its PR 879 meant the norm before the head, with a pre-norm carry.",),
    ),
    _code(
        "DS202",
        "Wrong aux boundaries",
        "The target layers whose states the drafter reads are not those that it was trained on: off by one (layer output"
        " against layer input), a guessed default, or another order. Shows at step 1.",
        "sgl-project/sglang PR 25454",
        "vllm-project/vllm PR 50170",
        limits="Neighbouring layers can be so much alike that they cannot be told apart.",
        advice=("State the layers in the config: engines guess a default otherwise, and read lists in two conventions.",),
    ),
    _code(
        "DS203",
        "Wrong vocabulary map",
        "Draft ids are turned into the wrong tokens: d2t read as ids instead of offsets, a placeholder, or a map made for"
        " another head. Shows at step 1, where agreement is next to nothing.",
        "SafeAILab/EAGLE issue 222",
        "sgl-project/SpecForge PR 534",
        advice=("Export d2t together with the head that it belongs to.",),
    ),
    _code(
        "DS204",
        "Wrong rotary embedding",
        "Base, scaling or layout of the rotary embedding is not the one of training. Shows at step 1 and grows with length.",
        "wejoncy/sfllm PR 32",
        "vllm-project/speculators PR 574",
        limits="On short texts a wrong scaling may change nothing: measure with long prompts, `driftscope probe --probes length`.",
        advice=("A config without rope_theta means 10000, never the target's.",),
    ),
    _code(
        "DS205",
        "Norm missing or misplaced",
        "A norm is applied that was not there in training, or left out, or another stream is added to: norms before fc,"
        " the residual of the first layer, the norm before the head, a second norm of the state, (1 + w) weights.",
        "vllm-project/vllm PR 38111",
        "vllm-project/vllm PR 46488",
        "vllm-project/vllm PR 14464",
    ),
    _code(
        "DS206",
        "Wrong feature source",
        "The drafter was trained on the target's last state before the final norm and gets it after the norm, or the other"
        " way round. Shows at step 1.",
        "ggml-org/llama.cpp PR 24025",
        "sgl-project/sglang issue 32334",
    ),
    _code(
        "DS207",
        "Wrong embedding or head",
        "The embedding or the head that runs is not the one of training: the target's in place of the drafter's own, a"
        " random export, a tied one.",
        "vllm-project/vllm-ascend PR 7038",
        "sgl-project/sglang PR 27908",
        advice=("A quantised or rotated target must not lend its embedding.",),
    ),
    _code(
        "DS208",
        "Wrong token or position shift",
        "Features, tokens and predictions are paired otherwise than in training, or positions advance by another step.",
        "sgl-project/SpecForge PR 244",
        limits="Pairings that would show the drafter the token it has to draft are not tried: they beat any drafter.",
        advice=("Row i pairs the features of position i with the token at i + 1, and predicts the token at i + 2.",),
    ),
    _code(
        "DS209",
        "Layer wired otherwise",
        "Order of embedding and state, split into heads, activation, biases or attention window differ from training.",
        "vllm-project/speculators PR 684",
    ),
    _code(
        "DS210",
        "Draft keys kept otherwise",
        "The drafter was trained to see other rows than it sees when it drafts: without those of earlier steps, or without"
        " the rows of the prompt. No config says so; the engine has to do it.",
        "vllm-project/vllm issue 14649",
    ),
)  # fmt: skip

register(*(Coded(code) for code in CODES))
