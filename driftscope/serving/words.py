"""A diagnosis in sentences, and as a finding."""

from __future__ import annotations

from collections.abc import Sequence

from driftscope.findings.model import Evidence, Finding
from driftscope.findings.registry import definition
from driftscope.findings.words import listed, plain
from driftscope.serving import hints
from driftscope.serving.diagnosis import Diagnosis, Ranked

_MANY = 4


def headline(found: Diagnosis) -> str:
    """The answer in one line."""
    seen, walked = figures(found), predicted(found, found.declared)
    if found.exact and found.outcome == "same":
        return f"the engine serves what the walk serves: every counter is one that the walk over these texts allows ({seen})"
    if found.outcome == "same":
        return f"the engine serves what the walk serves ({seen} against {walked}; p {found.p:.2f})"
    if found.outcome == "cannot tell":
        return (
            f"no difference seen ({seen} against {walked}; p {found.p:.2f}), but too little to tell: {_missing(found)}"
        )
    word = "less" if found.outcome == "less" else "more"
    start = (
        "the engine accepts" if found.position in (None, 1) else f"from position {found.position} on the engine accepts"
    )
    return f"{start} {word} than the walk ({seen} against {walked}; p {_p(found.p)})"


def explanation(found: Diagnosis) -> str:
    """Which reading predicts the counters; empty where nothing differs and none but the declared one predicts every counter."""
    if found.outcome not in ("less", "more"):
        exact = [part.reading.name for part in found.to_the_digit]
        costs = "though the difference is too small to matter"
        return f"every single counter is what {listed(exact[:_MANY])} predicts, {costs}" if exact else ""
    if not found.tied:
        return (
            "none of the readings that were walked predicts these counters: another target, a quantised one, or a fault of its"
            " own kind"
        )
    best = found.tied[0]
    predicts = f"it predicts {predicted(found, best)}"
    if found.named is not None:
        others = [part.reading.alternative for part in found.tied[1:]]
        also = f" ({listed(others[:_MANY])} predicted as well)" if others else ""
        return f"{reading_words(best)}: {predicts}{also}"
    names = [part.reading.name for part in found.tied]
    if len(names) == 1:
        return f"the likeliest is {names[0]}, but it fits badly (p {_p(best.p or 0.0)}): {predicts}"
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return f"the counters do not tell apart {', '.join(names[:_MANY])}{more}; the likeliest is {best.reading.name}: {predicts}"


def reading_words(part: Ranked) -> str:
    """What the engine does, as a sentence."""
    reading = part.reading
    if reading.words:
        return f"the engine {reading.words}"
    if not reading.switch:
        return "the engine reads the checkpoint as this run does"
    return f"the engine runs {reading.switch} as {reading.alternative}, not {reading.declared}"


def next_steps(found: Diagnosis) -> list[str]:
    """What to look at, the first thing first."""
    engine = found.counters.engine
    if found.outcome == "cannot tell":
        return [] if found.traffic.same_prompts else [_SAME]
    if found.outcome == "same":
        return []
    steps = []
    for part in found.tied[:_MANY]:
        place = part.reading.look_at or hints.where_to_look(engine, part.reading.switch)
        if place and f"{part.reading.switch or part.reading.name}: {place}" not in steps:
            steps.append(f"{part.reading.switch or part.reading.name}: {place}")
    if found.outcome == "more":
        steps.append(hints.EASIER)
    elif found.position is None:
        steps.append(hints.UNPLACED)
    else:
        steps.append(hints.FIRST if found.position == 1 else hints.LATER)
    if not found.traffic.same_prompts:
        steps.append(_SAME)
    return steps


_SAME = "serve the run's prompts once each, greedily, and give --same-prompts: then prompts cancel and far less is seen"


def finding(found: Diagnosis) -> Finding | None:
    """DS401 to DS404; None where the engine serves what the walk serves, or too little was counted."""
    if found.outcome not in ("less", "more"):
        return None
    if found.named is not None and found.named.reading.name != found.declared.reading.name:
        code = "DS403"
    elif found.outcome == "more":
        code = "DS404"
    else:
        code = "DS402" if found.position is not None and found.position > 1 else "DS401"
    about = definition(code)
    statement = (
        f"{headline(found)[0].upper()}{headline(found)[1:]}. {explanation(found)[:1].upper()}{explanation(found)[1:]}."
    )
    shares = found.counters.shares or (found.counters.length,)
    evidence = [
        Evidence(
            f"accepted at position {place}" if found.counters.shares else "accepted tokens of a round",
            share,
            unit="share" if found.counters.shares else "tokens",
            over=f"{found.counters.drafts:,} drafts",
        )
        for place, share in enumerate(shares, start=1)
    ]
    return Finding(code, about.title, statement, tuple(evidence), (*next_steps(found), *about.advice), found.position)


def figures(found: Diagnosis) -> str:
    """What the engine counted: `.43 .16 .08`, or a length."""
    shares = found.counters.shares
    return spelled(shares) if shares is not None else f"{plain(found.counters.length)} tokens a round"


def predicted(found: Diagnosis, part: Ranked) -> str:
    """What a reading predicts, in the same words."""
    if found.counters.shares is not None:
        return spelled(part.shares or ())
    return f"{plain(part.length or 0.0)}"


def spelled(shares: Sequence[float]) -> str:
    """Shares without the 0 in front, as many digits as the smallest needs up to three."""
    digits = 3 if shares and min(shares) < 0.095 else 2
    return " ".join(f"{share:.{digits}f}".removeprefix("0") for share in shares)


def _missing(found: Diagnosis) -> str:
    if found.more_drafts is not None:
        return f"a tenth of the length could be lost unseen, {found.more_drafts:,} more drafts would show it"
    if found.traffic.same_prompts:
        return "a tenth of the length could be lost unseen, the run has too few prompts; probe and serve more"
    return (
        "a tenth of the length could be lost unseen, with any number of drafts: the run's own prompts differ too much"
    )


def _p(value: float) -> str:
    return "below .0001" if value < 1e-4 else f"{value:.4f}".removeprefix("0")
