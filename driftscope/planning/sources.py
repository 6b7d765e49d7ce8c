"""From what a user asks for to a model of costs, and to the pair of a run where one is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftscope.errors import DriftscopeError
from driftscope.figures.trees import CHAIN
from driftscope.planning.costs import CostModel, batch_sizes, ratio_costs, read_costs
from driftscope.planning.plan import drafts_in_one_pass
from driftscope.runs.parameters import TREE, parameters_of

if TYPE_CHECKING:
    from driftscope.chain.pair import Pair
    from driftscope.runs.folder import RunFolder


@dataclass(frozen=True)
class CostRequest:
    """At most one of the four sources is asked for; without one nothing is said of time."""

    costs: Path | None = None
    ratio: float | None = None
    roofline: str | None = None
    measure: bool = False
    batches: str = "1,4,16"
    nodes: tuple[int, ...] = ()
    """Sizes of trees whose verification is to be costed too."""

    def check(self) -> CostRequest:
        """Itself. DriftscopeError where more than one source is asked for."""
        asked = [self.costs is not None, self.ratio is not None, self.roofline is not None, self.measure]
        if sum(asked) > 1:
            raise DriftscopeError("say where costs come from once: --measure, --costs, --roofline or --ratio")
        return self


def load_run_pair(run: RunFolder, target: str | None = None, **places: Any) -> Pair:
    """The drafter and target that a run was measured on, with the switches that its user set."""
    from driftscope.chain.pair import load_pair

    checkpoint = run.info.checkpoint
    own = {
        name: checkpoint.switches[name] for name, origin in checkpoint.origins.items() if origin.get("source") == "user"
    }
    overrides = {name: tuple(value) if isinstance(value, list) else value for name, value in own.items()}
    return load_pair(checkpoint.path, target or run.info.target.name, overrides=overrides or None, **places)


def costs_for(
    run: RunFolder,
    request: CostRequest,
    depth: int,
    pair: Callable[[], Pair],
    tell: Callable[[str], None] | None = None,
) -> CostModel | None:
    """The model that is asked for, if any, for chains of up to `depth` tokens. `pair` loads the run's, where it must run."""
    from driftscope.planning.roofline import drafter_size, roofline, target_size, usual_context

    one_pass = drafts_in_one_pass(run)
    if request.costs is not None:
        return read_costs(request.costs, one_pass)
    if request.ratio is not None:
        return ratio_costs(request.ratio, depth, one_pass)
    if not request.measure and request.roofline is None:
        return None
    from driftscope.planning.measure import Sizes, measure_costs, rows_needed

    sizes, rows = batch_sizes(request.batches), rows_needed(depth, request.nodes)
    context = usual_context([(prompt.prompt_length + prompt.text_length) // 2 for prompt in run.info.prompts])
    if request.measure:
        return measure_costs(pair(), Sizes(sizes, rows, context, depth), tell=tell)
    from driftscope.checkpoints import fit_to_target, open_checkpoint
    from driftscope.target.model import target_config

    config = target_config(run.info.target.name)
    if config is None:
        raise DriftscopeError(
            f"--roofline needs the config of {run.info.target.name}, which is not here: give --costs instead"
        )
    opened = open_checkpoint(run.info.checkpoint.path, target_config=config.get_text_config(decoder=True))
    fitted = fit_to_target(opened.config, config.get_text_config(decoder=True))
    assert request.roofline is not None
    return roofline(request.roofline, target_size(config), drafter_size(fitted), sizes, rows, context, one_pass)


def measured_nodes(run: RunFolder) -> tuple[int, ...]:
    """Sizes of the trees that a run holds."""
    if "trees" not in run.probes:
        return ()
    variants = run.table("variants", "trees")
    shapes = parameters_of(variants[variants["variant"] != CHAIN], TREE)
    return tuple(sorted({int(shape["nodes"]) for shape in shapes.values()}))
