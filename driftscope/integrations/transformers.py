"""`DriftCallback`: drift metrics in a Trainer of transformers.

capture = training_capture("path/to/target", model)
trainer = Trainer(model, ...)
trainer.add_callback(DriftCallback(capture, log=trainer.log, every=500))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from driftscope.integrations.early import EarlyWarning
from driftscope.integrations.live import Live
from driftscope.integrations.training import ALPHAS, TrainingCapture, drift_metrics
from driftscope.target.model import Target

LOGGER = logging.getLogger("driftscope")


class DriftCallback(TrainerCallback):
    """Measures `drift_metrics` and logs them, on the first process only.

    target: what `training_capture` returned, or a Target. log: where the figures go, `trainer.log` or for instance
    `wandb.log`. every: steps between evaluations; None measures whenever the Trainer evaluates. drafter: takes the
    drafter's module, or a full state dict, out of the model that is trained; needed where parameters are sharded. config
    and overrides: as of `drift_metrics`. warning: None is silent.
    """

    def __init__(
        self,
        target: TrainingCapture | Target,
        *,
        log: Callable[[dict[str, float]], Any],
        every: int | None = None,
        drafter: Callable[[Any], Live] | None = None,
        config: Any = None,
        overrides: Mapping[str, Any] | None = None,
        alphas: Sequence[float] = ALPHAS,
        warning: EarlyWarning | bool | None = True,
    ) -> None:
        self.target, self.log, self.every = target, log, every
        self.drafter = drafter or (lambda model: model)
        self.options: dict[str, Any] = {"config": config, "overrides": overrides, "alphas": alphas}
        depth = target.settings.depth if isinstance(target, TrainingCapture) else 8
        self.warning = EarlyWarning(depth) if warning is True else warning or None

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        if self.every is not None and state.global_step % self.every == 0:
            self.measure(model, state, control)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        if self.every is None:
            self.measure(model, state, control)

    def measure(self, model: Any, state: TrainerState, control: TrainerControl) -> None:
        """Measure now, log, and warn."""
        # Outside the check: taking a full state dict out of sharded parameters needs every process.
        drafter = self.drafter(model)
        if not state.is_world_process_zero:
            return
        metrics = drift_metrics(drafter, self.target, **self.options)
        # The Trainer's log takes back its own wish to log the loss of this step.
        wished = control.should_log
        self.log(dict(metrics))
        control.should_log = wished
        for line in self.warning(metrics, state.global_step) if self.warning else ():
            LOGGER.warning(line)
