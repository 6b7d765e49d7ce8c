"""What drift costs, in sentences."""

from __future__ import annotations

from driftscope.findings.cost import PATHS, PRACTICAL_TOKENS, DriftCost, PathCost
from driftscope.findings.words import bare, counted, listed, plain, with_interval
from driftscope.stats.intervals import MIN_PROMPTS, Interval
from driftscope.stats.power import prompts_needed

UNMEASURED = "what it costs was not measured"
NOTHING = "costs nothing that can be told"


def cost_sentence(cost: DriftCost, *, at_once: bool = False) -> str:
    """What is accepted, what would be without drift, what drift costs, and through what; `at_once`: of a block."""
    of = "of the drafted tokens" if cost.depth is None else f"of {counted(cost.depth, 'drafted token')}"
    real = "drafted one by one from real states" if at_once else "without drift"
    start = f"{plain(cost.actual.mean)} {of} are accepted, {plain(cost.undrifted.mean)} would be {real}"
    if at_once:
        return f"{start}: the price of drafting in one block is {with_interval(cost.cost)} tokens."
    return f"{start}: {_verdict(cost)}.{_joint(cost)}"


def _verdict(cost: DriftCost) -> str:
    figure = bare(cost.cost, sign=True)
    dear = cost.costly()
    yet = f", though {listed([_costs(name, cost.paths[name]) for name in dear])}" if dear else ""
    if cost.told == "costs":
        return f"drift costs {with_interval(cost.cost)}{_through(cost, dear)}"
    if cost.told == "gains":
        return f"drift costs nothing, {plain(-cost.cost.mean)} more are accepted with it ({_ends(cost.cost)}){yet}"
    if cost.told == "nothing":
        return f"drift costs less than {PRACTICAL_TOKENS:g} ({figure}){yet}"
    if cost.told == "few":
        return f"no cost of drift can be told ({figure}): fewer than {MIN_PROMPTS} prompts give no interval"
    return f"no cost of drift can be told ({figure}){yet}{_would_tell(cost)}"


def _through(cost: DriftCost, dear: list[str]) -> str:
    if not cost.paths:
        return ""
    if not dear:
        return "; through which path cannot be told"
    clauses = []
    for name in dear:
        path = cost.paths[name]
        part = "" if path.together else f"{_part(path.shapley.mean / cost.cost.mean)} "
        figure = "" if path.together else f" ({bare(path.shapley)})"
        clauses.append(f"{part}through {PATHS[name]}{figure}")
    return f", {listed(clauses)}"


def _joint(cost: DriftCost) -> str:
    """The paths that no single number describes."""
    said = [
        f" {PATHS[name][:1].upper()}{PATHS[name][1:]} and the rest work together: with it alone made real"
        f" {_change(path.alone)}, with it made real last {_change(path.last)}."
        for name, path in cost.paths.items()
        if path.together
    ]
    return "".join(said)


def _change(effect: Interval) -> str:
    return f"{with_interval(Interval(abs(effect.mean), *_turned(effect)))} {'more' if effect.mean > 0 else 'fewer'}"


def _turned(effect: Interval) -> tuple[float | None, float | None]:
    """The ends as those of the absolute value of the mean."""
    if effect.mean >= 0 or effect.low is None or effect.high is None:
        return effect.low, effect.high
    return -effect.high, -effect.low


def _would_tell(cost: DriftCost) -> str:
    size = max(PRACTICAL_TOKENS, abs(cost.cost.mean))
    count = None if cost.prompts is None else prompts_needed(cost.cost, cost.prompts, size)
    return "" if count is None else f"; about {_rounded(count)} prompts would tell one of {plain(size)}"


def _rounded(count: int) -> str:
    """To two figures: it is an estimate."""
    digits = max(0, len(str(count)) - 2)
    return f"{-(-count // 10**digits) * 10**digits:,}"


def _part(share: float) -> str:
    for least, words in ((0.9, "nearly all of it"), (0.6, "most of it"), (0.4, "about half of it")):
        if share >= least:
            return words if share <= 1.1 or least < 0.9 else "more than all of it"
    return "part of it"


def _ends(figure: Interval) -> str:
    low, high = _turned(figure)
    return "" if low is None or high is None else f"95% {plain(low)} to {plain(high)}"


def _costs(name: str, path: PathCost) -> str:
    return f"{PATHS[name]} costs {with_interval(path.shapley)}"


def path_clause(cost: DriftCost | None, name: str) -> str:
    """What follows a statement that something moves: what drift costs through that path."""
    if cost is None or name not in cost.paths:
        return UNMEASURED
    path = cost.paths[name]
    figure = f"{with_interval(path.shapley, sign=not path.costs)} accepted tokens through {PATHS[name]}"
    return f"drift costs {figure}" if path.costs else f"that {NOTHING}: {figure}"


def moves_sentence(cost: DriftCost, *, growth: bool, attention: bool) -> str:
    """What of that which moves costs nothing, and what does instead; empty where all of it costs something, or where that
    cannot be told of any."""
    if cost.told == "few" or (cost.told == "costs" and not cost.costly()):
        return ""
    moved = [name for name, moves in (("state", growth), ("pattern", attention)) if moves and name in cost.paths]
    idle = [name for name in moved if not (cost.paths[name].costs or cost.paths[name].together)]
    others = [name for name in cost.costly() if name not in idle]
    what = {"state": "The growth", "pattern": "That attention moves"}
    if not idle:
        return ""
    subject = "Neither" if len(idle) == 2 else what[idle[0]]
    verb = "costs anything that can be told" if len(idle) == 2 else NOTHING
    tail = f": {listed([PATHS[name] for name in others])} {'does' if len(others) == 1 else 'do'}" if others else ""
    return f"{subject} {verb}{tail}."
