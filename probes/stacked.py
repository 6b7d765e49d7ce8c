"""Several copies of every chain in one pass: a pass costs far more than a row, and seeds differ only in what is added."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from driftscope.chain.chain import Feed, chain_inputs
from driftscope.chain.interventions import Intervention
from driftscope.chain.observe import Measure, observe
from driftscope.chain.prompt_chains import Subject

Steps = list[dict[str, Tensor]]


def first_anchors(subject: Subject, count: int | None) -> Subject:
    """The same prompt with its first `count` anchors (None: all of them), no more than it has; text and prefix pass are
    shared. They are consecutive, so that rounds can be walked over them."""
    return _narrowed(subject, count, spread=False)


def spread_anchors(subject: Subject, count: int | None) -> Subject:
    """As `first_anchors`, evenly over the continuation: a sample of all anchors. Within the first anchors of a run that has only
    these."""
    return _narrowed(subject, count, spread=subject.settings.anchors is None or subject.settings.spread)


def _narrowed(subject: Subject, count: int | None, *, spread: bool) -> Subject:
    settings = subject.settings
    if settings.anchors is not None:
        count = settings.anchors if count is None else min(count, settings.anchors)
    if (count, spread) == (settings.anchors, settings.spread) or (count is None and not settings.spread):
        return subject
    return subject.with_anchors(count, spread=spread)


def stacked_anchors(subject: Subject, copies: int) -> Tensor:
    """Long[anchor * copies]: row i belongs to anchor i // copies and copy i % copies."""
    return subject.anchors.repeat_interleave(copies)


def stacked_chains(
    subject: Subject,
    feed: Feed,
    copies: int,
    measure: Measure,
    *,
    sites: Sequence[str],
    depth: int | None = None,
    interventions: Sequence[Intervention] = (),
) -> Steps:
    """Chains of all anchors, `copies` of each, as observe() returns them: quantities [anchor * copies, ...] per step."""
    inputs = chain_inputs(
        subject.text,
        subject.passed.prefix,
        subject.windows,
        anchors=stacked_anchors(subject, copies),
        depth=depth or subject.settings.depth,
        feed=feed,
    )
    return observe(
        subject.pair.drafter_nn,
        inputs,
        measure,
        sites=sites,
        interventions=interventions,
        budget=subject.budget,
    )


def copy_of(steps: Steps, copies: int, index: int) -> Steps:
    """One of the copies, [anchor, ...] per step."""
    return [{name: value[index::copies] for name, value in step.items()} for step in steps]
