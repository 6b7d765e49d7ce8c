"""One prompt under one drafter: the text, the prefix pass, the anchors and the chains over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from driftscope.captures.capture import Capture
from driftscope.captures.conditions import Condition
from driftscope.chain.baseline import SINK_ROWS, PrefixPass
from driftscope.chain.block_measure import BlockMeasure
from driftscope.chain.chain import Feed, Text, chain_inputs
from driftscope.chain.chunks import with_budget
from driftscope.chain.drafter_inputs import drafter_text
from driftscope.chain.interventions import Intervention
from driftscope.chain.measure import HEAVIEST, StepMeasure
from driftscope.chain.observe import Measure, observe
from driftscope.chain.pair import Pair
from driftscope.chain.prefix import prefix_pass
from driftscope.chain.room import chunk_bytes
from driftscope.drafter.attention import Window
from driftscope.drafter.block import BlockDrafter
from driftscope.errors import DriftscopeError

FULL = Window()


@dataclass(frozen=True)
class Settings:
    """What the probes of a run share."""

    depth: int = 8
    """Steps that the default tables hold."""
    horizon: int = 16
    """D: anchors end at T-2-D, so that a deeper probe moves none."""
    sinks: tuple[int, ...] = (0,)
    anchors: int | None = None
    """So many anchors of each prompt, the first ones; None is all."""
    spread: bool = False
    """They lie evenly over the continuation instead. Attention drifts otherwise right behind the prompt, where little is
    committed: only a spread choice is a sample of all anchors. Rounds cannot be walked over it."""
    seed: int = 0
    budget: int | None = None
    """Bytes of attention scores that a chunk may hold; None is a share of what the device has free. No figure depends on it."""


@dataclass(eq=False)
class Subject:
    """One prompt, prepared. A config variant (other windows) is another Subject over the same capture."""

    pair: Pair
    capture: Capture
    settings: Settings
    window: Window = FULL
    condition: Condition | None = None
    """What the probe asked instead of the run's own prompt, if it did."""
    _wider: Subject | None = field(default=None, repr=False, init=False)
    """The same prompt with more anchors, whose text and prefix pass serve this one as well."""
    _clean: dict[tuple[Feed, int], list[dict[str, Tensor]]] = field(default_factory=dict, repr=False, init=False)

    @property
    def windows(self) -> list[Window]:
        """Per layer, what a query may see."""
        return [self.window if self.window != FULL else own for own in self.pair.drafter.windows]

    @cached_property
    def budget(self) -> int:
        """Bytes of attention scores that a chunk may hold."""
        return chunk_bytes(self.pair.drafter.device) if self.settings.budget is None else self.settings.budget

    def with_anchors(self, count: int | None, *, spread: bool) -> Subject:
        """The same prompt with `count` of its anchors (None: all of them); text and prefix pass are shared.

        Args:
            count: no more than this subject has.
            spread: they lie evenly over the continuation, as in `Settings.spread`.
        """
        narrow = replace(self, settings=replace(self.settings, anchors=count, spread=spread))
        narrow._wider = self
        return narrow

    @cached_property
    def text(self) -> Text:
        if self._wider is not None:
            return self._wider.text
        drafter = self.pair.drafter
        return drafter_text(self.pair.config, self.capture, device=drafter.device, dtype=drafter.dtype)

    @cached_property
    def passed(self) -> PrefixPass:
        if self._wider is not None:
            return self._wider.passed
        settings, rows = self.settings, len(self.text.token_ids) - 1
        if len(self.anchors):
            # No chain stands at a later row; sinks are looked for in the first ones.
            rows = min(rows, max(int(self.anchors[-1]) + settings.horizon, SINK_ROWS))

        def run(budget: int) -> PrefixPass:
            return prefix_pass(
                self.pair.drafter,
                self.text,
                self.windows,
                sinks=settings.sinks,
                horizon=settings.horizon,
                rows=rows,
                budget=budget,
            )

        return with_budget(self.budget, run, "attention scores")

    @cached_property
    def anchors(self) -> Tensor:
        """Long[anchor] on the drafter's device."""
        found, count = self.text.anchors(self.settings.horizon), self.settings.anchors
        if count is None or not self.settings.spread or count >= len(found):
            return found[:count]
        # The middle of each of `count` equal stretches.
        places = (torch.arange(count, device=found.device) * 2 + 1) * len(found) // (2 * count)
        return found[places]

    @cached_property
    def consecutive(self) -> bool:
        """Whether a served walk can step from anchor to anchor."""
        return bool((self.anchors.diff() == 1).all())

    @cached_property
    def looping(self) -> np.ndarray:
        """Bool[anchor]: a token that the anchor's horizon predicts lies in a repetition loop of the target."""
        return self._ahead(self.capture.loop, 2)

    @cached_property
    def near_tie(self) -> np.ndarray:
        """Bool[anchor]: the recording forward's argmax differs from the text within the horizon."""
        return self._ahead(self.capture.near_tie, 1)

    def _ahead(self, mask: Tensor, first: int) -> np.ndarray:
        offsets = torch.arange(first, first + self.settings.horizon)
        return mask[self.anchors.cpu()[:, None] + offsets].any(-1).numpy()

    def chains(
        self,
        feed: Feed,
        *,
        depth: int | None = None,
        interventions: Sequence[Intervention] = (),
        measure: Measure | None = None,
        sites: Sequence[str] | None = None,
    ) -> list[dict[str, Tensor]]:
        """Run the chains of all anchors; per step the quantities of `measure` (StepMeasure's when None)."""
        drafter = self.pair.drafter
        depth = depth or self.settings.depth
        inputs = chain_inputs(self.text, self.passed.prefix, self.windows, anchors=self.anchors, depth=depth, feed=feed)
        if measure is None:
            measure = self.measure(HEAVIEST if feed == "drafted" else 0)
        return observe(
            self.pair.drafter_nn,
            inputs,
            measure,
            sites=drafter.step_sites if sites is None else sites,
            first_sites=drafter.first_sites if sites is None else (),
            interventions=interventions,
            budget=self.budget,
        )

    def real_rows(self, depth: int | None = None) -> list[dict[str, Tensor]]:
        """The chains of all anchors with real features at every step, as `chains("text")` gives them with drafted ones: which token
        a step embeds (`feed`) and where its state comes from are two questions.

        Step k of anchor t stands at row r = t+k-1; with everything real it is step 1 of the chain at r. So each row is run once, at
        depth 1, and every step is a lookup.

        Args:
            depth: steps, at most the horizon; None is that of the run.

        Raises:
            DriftscopeError: a drafter of all steps at once, whose later rows hold masks, or more steps than the horizon.
        """
        depth, drafter = depth or self.settings.depth, self.pair.drafter
        if not self.pair.config.carries:
            raise DriftscopeError("this drafter drafts all steps at once: a later step has no features of its own")
        if depth > self.settings.horizon:
            raise DriftscopeError(
                f"{depth} steps of real rows, anchors have {self.settings.horizon} ahead: raise --horizon"
            )
        places = self.anchors[:, None] + torch.arange(depth, device=self.anchors.device)
        rows, index = torch.unique(places, return_inverse=True)
        inputs = chain_inputs(self.text, self.passed.prefix, self.windows, anchors=rows, depth=1, feed="text")
        measure = StepMeasure(drafter, self.text, self.passed.baseline, self.settings.sinks, rows, 0)
        (found,) = observe(
            self.pair.drafter_nn,
            inputs,
            measure,
            sites=drafter.step_sites,
            first_sites=drafter.first_sites,
            budget=self.budget,
        )
        return [{name: value[index[:, step]] for name, value in found.items()} for step in range(depth)]

    def measure(self, heaviest: int = 0) -> StepMeasure:
        """What is read off the steps; see StepMeasure."""
        drafter = self.pair.drafter
        kind = BlockMeasure if isinstance(drafter, BlockDrafter) else StepMeasure
        return kind(drafter, self.text, self.passed.baseline, self.settings.sinks, self.anchors, heaviest)

    def clean(self, feed: Feed, depth: int | None = None) -> list[dict[str, Tensor]]:
        """The undisturbed chains, run once per feed and depth."""
        key = (feed, depth or self.settings.depth)
        if key not in self._clean:
            self._clean[key] = self.chains(feed, depth=key[1])
        return self._clean[key]
