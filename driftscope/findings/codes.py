"""The codes of drift (DS1xx) and of the data (DS3xx). What they rest on is in the sources; limits are in `thresholds`."""

from __future__ import annotations

from driftscope.findings.model import Definition
from driftscope.findings.thresholds import DRIFT_PAPER

EAGLE31 = (
    "Train with the two norms of EAGLE 3.1: one on each target feature before fc (`fc_norm`) and the post-norm carry"
    " (`norm_output`). Which of the two helps on your pair is what `driftscope compare` answers, given checkpoints of"
    " each."
)
_FLIP = "Flipping the switch at inference (--carry post) is a control: a drafter trained without it gets worse."
_PIN = "driftscope probe CHECKPOINT --probes pin: how much of the drift of attention the magnitude causes."
_TTT = (
    "Train with more unrolled steps, so that the states of later steps are seen in training: the published pre-norm"
    " drafter keeps .50 of conditional acceptance at step 16 with 8 of them and nothing with 2."
)
_FEWER = "Until then draft fewer steps: those past the first step that drifts cost the most for what they bring."

LIMITS = {
    "vocabulary": (
        "the draft vocabulary lacks the token",
        "Rebuild the draft vocabulary from texts like those that you serve, or enlarge it, and train the head again.",
    ),
    "drafter": (
        "the drafter is wrong with real states too",
        "Capacity and data: train longer and on texts like those that you serve; then a wider or deeper drafter, or more"
        " layers of the target to read.",
    ),
}
"""Reason of a rejection that is not drift -> in words, and what mends it."""

CODES = (
    Definition(
        "DS101",
        "Norm growth",
        meaning="The state that the drafter hands from step to step gets larger at every step. In EAGLE-3 it goes"
        " through an un-normalised residual path, so each step adds to it and what a later step adds weighs less: the"
        " drafter then acts like further layers of the target rather than like a predictor of the next position.",
        measured="RMS of the carry at step k over that at step 1, per anchor, as a geometric mean over anchors and then"
        " prompts. Found from the first step that is beyond the threshold, with a 95% interval over prompts that"
        " excludes 1, and stays so to the last step. Matched growth is against a row made from real target features at"
        " the same position.",
        limits="Where the cost probe was run and drift costs nothing through the carried state, this is a note, not a"
        " finding. Attention reads the normalised state, so growth does not scale queries or keys by itself; the pin probe"
        " tells how much follows from it. A post-norm carry keeps its norm by construction: there a flat norm says"
        " nothing about health, and the rule is silent about it.",
        advice=(
            "Train with a post-norm carry (`norm_output`): the normalised state is carried on. It adds no"
            f" weights but takes training. {_FLIP}",
            _PIN,
            _TTT,
            _FEWER,
        ),
        thresholds=("norm_growth",),
        probes=("norms",),
        sources=(DRIFT_PAPER, "SafeAILab/EAGLE issue 63: a carried state that grows until it is not a number"),
    ),
    Definition(
        "DS102",
        "Attention drift",
        meaning="Within a chain, the drafter's attention leaves where it lies without drafting: it moves off the"
        " target's sink or onto tokens that the drafter itself wrote, so that an early mistake is read again by every"
        " later step.",
        measured="Three figures, each against step 1 with an interval over prompts and persistence to the last step:"
        " displacement (half the change over the parts of the context, per head, each part with the sign that the other"
        " prompts agree on, then the mean over heads: mere scatter gives 0), the excess"
        " on the chain's own rows, and the raw mass on the sink. Excess and displacement are against rows at the same"
        " positions made from real target features, so a drafter that always reads recent tokens does not count as"
        " drifting. A jump at step 2 without a slope after it is the crossing from prefill to draft; it is said to grow"
        " from step to step only where the slope over the later half of the steps has an interval beyond 0 too.",
        limits="A moved attention need not cost acceptance: where the cost probe was run and drift costs nothing through"
        " the attention pattern, this is a note, not a finding."
        " Heads may move in opposite directions; displacement counts them, the signed figures do not.",
        advice=(
            EAGLE31,
            _PIN,
            _TTT,
            "driftscope probe CHECKPOINT --probes length: whether a window with the sink kept in view holds acceptance.",
        ),
        thresholds=("displacement", "self_excess", "sink_loss"),
        probes=("attention",),
        sources=(DRIFT_PAPER,),
    ),
    Definition(
        "DS103",
        "Fused-input imbalance",
        meaning="The features that the drafter reads from the target differ in scale by layer. Where no norm evens them"
        " out before fc, the largest, usually the last, can dominate what the drafter sees, and training has to undo"
        " it.",
        measured="Without a norm before fc (`fc_norm`, `input_norm`): the share of each block in the fused input,"
        " |W_i a_i| over the sum of them, and the RMS of each feature, both outside the sink positions. The largest"
        " over the mean of the others is compared with the threshold.",
        limits="fc can learn to even the features out: then the RMS is uneven and the shares are not. The figures"
        " cannot tell what a norm would gain; only a checkpoint trained with it can.",
        advice=(
            "Train with FC-norm (`fc_norm`): an RMSNorm for each target feature before fc.",
            "Choose features of like scale: boundaries whose RMS is close, in the table of target layers.",
        ),
        thresholds=("fused_dominance", "aux_rms_dominance"),
        probes=("norms",),
        sources=(DRIFT_PAPER,),
    ),
    Definition(
        "DS104",
        "Noise fragility",
        meaning="Little noise on the carried state costs much of the accepted length. From step 2 on the state is the"
        " drafter's own and never exact, so a drafter that tolerates no error there cannot draft far.",
        measured="Gaussian noise of scale alpha times the RMS of each row, on the carried state; length kept in % of"
        " the clean one on the same anchors. The alpha at which half is lost, interpolated on a log scale, is compared"
        " with the threshold.",
        limits="Measured on few anchors by default. Noise on the embedding is reported beside it and is no part of"
        " the finding.",
        advice=(EAGLE31, "Add noise to the features in training, as EAGLE-1 did.", _TTT),
        thresholds=("noise_half_point",),
        probes=("noise",),
        sources=(DRIFT_PAPER,),
    ),
    Definition(
        "DS105",
        "Depth collapse",
        meaning="The drafter stops agreeing with the target after some steps, even when it is fed the right tokens: the"
        " carried state itself is used up. Drafting past that step is wasted.",
        measured="Share of anchors whose top token is the text's, fed with the text, at each step over that at step 1:"
        " the first step from which it stays below the threshold.",
        limits="A collapse beyond the depth that the drafter was trained for is expected; it bounds the depth to serve,"
        " not the quality.",
        advice=("Draft at most as many steps as hold up.", _TTT, EAGLE31),
        thresholds=("depth_kept",),
        probes=("acceptance", "depth"),
        sources=(DRIFT_PAPER, "vllm-project/vllm issue 33330: a drafter whose second token collapses"),
    ),
    Definition(
        "DS106",
        "Template sensitivity",
        meaning="Acceptance falls when the chat template, the BOS token or the system prompt is another than the one"
        " that the drafter was trained with.",
        measured="Accepted length per condition over that under the model's own template, on the same prompts.",
        limits="The target answers otherwise under another template, so part of a loss may be a harder text.",
        advice=(
            "Serve with the template of training, the BOS token included.",
            "Train on more than one template, or with BOS and system prompt left out at times.",
            EAGLE31,
        ),
        thresholds=("template_kept",),
        probes=("template",),
        sources=(DRIFT_PAPER, "sgl-project/SpecForge issue 296: a drafter trained with another chat template"),
    ),
    Definition(
        "DS107",
        "Length break",
        meaning="Beyond some context length the drafter accepts next to nothing, while the target still works.",
        measured="Accepted length at each context length over that at the shortest one, for the drafter as configured;"
        " the same under a window, a window with the sink and a window with the system prompt.",
        limits="Long contexts are built from many short turns; one long document may behave otherwise.",
        advice=(
            "Serve with the attention window that holds acceptance in the table, if one does.",
            "Check the drafter's position limit and rope against the target's: driftscope inspect CHECKPOINT --target"
            " TARGET.",
            "Train on long contexts.",
        ),
        thresholds=("length_kept",),
        probes=("length",),
        sources=(
            DRIFT_PAPER,
            "vllm-project/speculators PR 684: length 2.30 at 2k tokens, 1.08 at 20k",
            "sgl-project/sglang issue 6783: a drafter limited to 2048 positions",
        ),
    ),
    Definition(
        "DS108",
        "Accepted length varies more than its mean tells",
        meaning="Rounds accept either much or little. A speed-up computed from the mean holds for the mix of texts that"
        " was measured and for no single one.",
        measured="Standard deviation of the accepted tokens per served round, over that of a drafter with one constant"
        " acceptance rate and the same mean (a geometric distribution cut off at the depth). Rounds that start in a"
        " loop of the target are left out.",
        limits="A ratio of 1 does not mean that rounds are alike: a constant rate has a large spread of its own.",
        advice=(
            "Judge by the quantiles, or by the figures of each category of prompts, instead of the mean.",
            "Let the engine choose the number of draft tokens by confidence, if it can.",
            "driftscope probe CHECKPOINT --prompts FILE with the prompts that you will serve.",
        ),
        thresholds=("length_dispersion",),
        probes=("acceptance",),
        sources=(
            "Leviathan et al., arXiv 2211.17192: the constant rate",
            "arXiv 2604.14682: the task predicts acceptance better than the depth in the tree",
        ),
    ),
    Definition(
        "DS110",
        "Drift costs accepted tokens",
        meaning="Chains are accepted further when what the drafter feeds itself with (the carried state, the attention"
        " pattern, the values of its own rows) is replaced by what it would have from the target's real states: what is"
        " lost between the two is lost to drift.",
        measured="Accepted length with everything its own against everything real, from the same anchors, paired by"
        " prompt; the interval lies above 0. Each path alone, last, and as its Shapley value; the three values add up to"
        " the cost.",
        limits="One path patched into a chain that adapted to the others can hurt: where alone and last differ in sign,"
        " no single number describes that path. A cost of drift says which path to mend, not which training mends it.",
        advice=(EAGLE31, _TTT, _FEWER),
        probes=("cost",),
        sources=("Shapley, A Value for n-Person Games (1953)", DRIFT_PAPER),
    ),
    Definition(
        "DS111",
        "The drafter, not drift, is what limits",
        meaning="Most chains end for a reason that is there without any drift: the draft vocabulary lacks the token, or"
        " the drafter is wrong with real states too. Curing drift cannot mend these.",
        measured="Every chain that is rejected has one reason, in the order vocabulary, target undecided, drafter, drift;"
        " the largest lies, at the lower end of its interval, above all of drift together.",
        limits="A note: nothing is wrong with the checkpoint.",
        advice=tuple(advice for _, advice in LIMITS.values()),
        probes=("cost",),
    ),
    Definition(
        "DS301",
        "Looping text",
        meaning="The target repeats itself in places. A loop is easy to predict, so it flatters any drafter.",
        measured="Share of anchors within reach of a stretch that repeats a block of at most 32 tokens three times.",
        limits="They are left out of every figure but the served length, which walks the text as an engine does.",
        advice=(
            "Compare the anchor mean instead of the served length.",
            "Shorten the continuations (--max-new-tokens) or choose prompts that the target answers at length.",
        ),
        thresholds=("loop_share",),
        probes=("acceptance",),
        sources=("lightseekorg/tokenspeed issue 1305: a long accepted length out of a loop of two tokens",),
    ),
    Definition(
        "DS302",
        "Vocabulary coverage",
        meaning="The draft vocabulary lacks tokens that the target writes. Those are always rejected: the coverage is"
        " a ceiling on acceptance.",
        measured="Share of the text's tokens, at the anchors outside loops, that the draft vocabulary holds; and the"
        " anchor mean of a drafter that gets every other token right.",
        limits="The ceiling is that of these prompts. Another language or code may be covered less.",
        advice=(
            "Rebuild the draft vocabulary from texts like those that you serve, and train the head again.",
            "A larger draft vocabulary costs time in the head and raises the ceiling.",
        ),
        thresholds=("vocabulary_coverage",),
        probes=("acceptance",),
        sources=("SafeAILab/EAGLE issue 222: vocabulary maps that do not fit",),
    ),
    Definition(
        "DS303",
        "Few prompts",
        meaning="There are too few prompts for intervals. What cannot be told from chance is not called drift.",
        measured="Prompts with a clean measurement; intervals need 12.",
        limits="Figures without an interval are still means over all anchors; their accuracy is unknown.",
        advice=(
            "driftscope probe CHECKPOINT --prompts FILE with more prompts, or without --prompts for the shipped ones.",
        ),
        probes=("norms", "attention", "acceptance"),
        sources=("Coverage of bootstrap intervals by number of prompts: driftscope.stats.intervals",),
    ),
    Definition(
        "DS304",
        "Near ties",
        meaning="At many positions the target's two best tokens are so close that one forward over the text prefers"
        " another than was generated. An engine may write another text there.",
        measured="Share of anchors whose horizon holds a position where the recording forward's best token is not the"
        " text's.",
        limits="Kept in all figures here; left out of exact comparisons.",
        advice=("Use a more exact type (--dtype float32), at least for a comparison with an engine.",),
        thresholds=("near_tie_share",),
        probes=("acceptance",),
    ),
    Definition(
        "DS305",
        "Prompts left out",
        meaning="A part of the prompts gave nothing to measure: empty, too short, too long for the target, or with a"
        " continuation shorter than the horizon.",
        measured="Prompts left out over all prompts, by reason.",
        limits="Short answers are left out as a kind, so the figures are of longer ones.",
        advice=("Lower --horizon or --depth for short answers; raise --max-new-tokens where it cut them off.",),
        thresholds=("skipped_share",),
    ),
    Definition(
        "DS306",
        "No sink",
        meaning="The target has no position that attention rests on whatever the text, so there is no sink to lose."
        " Targets such as gpt-oss and Qwen3-Next are built so.",
        measured="Early positions that more than a tenth of the target's heads give over .3 of their attention.",
        limits="The other figures of drift stand.",
        advice=("Name positions yourself (--sink 0) if you know the target to have one.",),
        probes=("attention",),
        sources=(DRIFT_PAPER, "alpha and its threshold: arXiv 2410.10781"),
    ),
)
