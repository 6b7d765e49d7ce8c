"""Charts by name: tidy rows of figures -> chart, which a caption then gives its words.

Report, app, notebooks and the terminal's tables all take a chart from here, by the name in a probe's captions
(`driftscope.probes.Record.pictures`). A name that no function has is a caption's own, or a probe's.
"""

from driftscope.show.drawings import clean, conditions
from driftscope.show.drawings.view import Drawing, Shown, View

__all__ = ["CHARTS", "Drawing", "Shown", "View"]

CHARTS: dict[str, Drawing] = {
    draw.__name__: draw
    for draw in (
        clean.overview,
        conditions.cost,
        conditions.cost_paths,
        conditions.cost_steps,
        clean.norms,
        clean.growth,
        clean.sites,
        clean.jumps,
        clean.boundaries,
        clean.aux,
        clean.cosines,
        clean.updates,
        clean.attention,
        clean.masses,
        clean.excess,
        clean.displacement,
        clean.per_key,
        clean.heads,
        clean.head,
        clean.one_head,
        clean.entropy,
        clean.acceptance,
        clean.survival,
        clean.lengths,
        clean.confidence,
        clean.sampling,
        conditions.noise,
        conditions.pin,
        conditions.depth,
        conditions.rank,
        conditions.layers,
        conditions.template,
        conditions.length,
        conditions.trees,
        conditions.traffic,
        conditions.rules,
        conditions.figures,
    )
}
"""Name -> (view, **options) -> what is shown."""
