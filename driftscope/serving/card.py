"""A block of Markdown for a model card: what was accepted, and the sentences that go with it."""

from __future__ import annotations

from driftscope.findings import assess, load
from driftscope.findings.causes import causes_of
from driftscope.findings.verdict import verdict
from driftscope.findings.words import counted
from driftscope.runs.naming import short_name
from driftscope.runs.run import Run
from driftscope.serving.golden import figures_at
from driftscope.serving.reading import walk_of

_DEPTHS = (1, 2, 3, 4, 5, 8, 12, 16)


def card(run: Run) -> str:
    """The block. RunError where the run holds no served walk."""
    walks = walk_of(run)
    info = run.info
    ks = [k for k in _DEPTHS if k <= walks.depth]
    drafter, target = short_name(info.checkpoint.path), info.target.name
    head = f"| K | tokens a step | accepted | {' | '.join(f'position {j}' for j in range(1, ks[-1] + 1))} |"
    lines = [
        "## Acceptance",
        "",
        f"Greedy, {counted(len(walks.prompts), 'prompt')} ({_kinds(walks.categories)}), target `{target}` in"
        f" {info.settings.get('dtype', 'its own dtype')}; K drafted tokens a step, served as vLLM serves a chain.",
        "",
        head,
        "|" + "---|" * (ks[-1] + 3),
    ]
    for k in ks:
        found = figures_at(walks, k)
        length = found["length"]
        if length is None:
            continue
        shares = [" - " if p is None else f"{p['mean']:.2f}" for p in found["positions"]] + [""] * (ks[-1] - k)
        lines.append(f"| {k} | {1 + length['mean']:.2f} | {_with_ends(length)} | {' | '.join(shares)} |")
    lines += [
        "",
        "*accepted*: drafted tokens of a step, without the target's own, with its 95% interval over prompts; *position j*: share",
    ]
    lines[-1] += " of the steps that accept at least j drafted tokens."
    lines += ["", *_sentences(run), ""]
    lines.append(
        f"Measured with driftscope {info.provenance.get('driftscope', '')} on `{drafter}` (sha256 `{info.checkpoint.sha256[:12]}`)."
    )
    return "\n".join(lines).rstrip() + "\n"


def _sentences(run: Run) -> list[str]:
    assessment = assess(run, load(None))
    summary = assessment.at_thresholds(run.summary(None))
    post_norm = summary["checkpoint"]["switches"].get("carry") == "post"
    found = verdict(summary, causes_of(assessment, post_norm))
    lines = [f"{found.headline[:1].upper()}{found.headline[1:]}."]
    lines += [f"- {part.code} {part.title}: {part.statement}" for part in assessment.wrong]
    return lines


def _kinds(categories: tuple[str, ...]) -> str:
    named = [name for name in categories if name]
    return ", ".join(named) if named else "of one kind"


def _with_ends(length: dict[str, float | None]) -> str:
    text = f"{length['mean']:.2f}"
    return text if length["low"] is None else f"{text} ({length['low']:.2f} to {length['high']:.2f})"
