"""The callback inside a real Trainer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from driftscope.integrations import DriftCallback, EarlyWarning, TrainingCapture
from tests import tiny_target
from tests.integrations.live import LiveDrafter, live_drafter, stored, tiny_capture

CONFIG = stored()[1]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> TrainingCapture:
    return tiny_capture(tiny_target.tiny_target(), tmp_path_factory.mktemp("capture"), depth=3)


class Sink(TrainerCallback):
    """Stands for a reporting integration."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.seen.append(dict(logs))


def trainer(folder: Path, **options: Any) -> tuple[Trainer, Sink]:
    torch.manual_seed(0)
    # The Trainer takes a config of transformers or none.
    drafter = LiveDrafter(stored()[0], None)
    rows = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(16)]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, seed=1, logging_strategy="steps", logging_steps=2, label_names=["labels"], **options,
    )  # fmt: skip
    sink = Sink()
    made = Trainer(drafter, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[sink])
    return made, sink


def test_figures_go_where_the_losses_go_and_training_does_not_notice(tmp_path: Path, held: TrainingCapture) -> None:
    plain, _ = trainer(tmp_path)
    plain.train()
    watched, sink = trainer(tmp_path)
    watched.add_callback(DriftCallback(held, log=watched.log, config=CONFIG, every=2, alphas=()))
    watched.train()
    expected = {name: value for name, value in plain.model.state_dict().items()}
    assert all(torch.equal(value, expected[name]) for name, value in watched.model.state_dict().items())
    logged = [part for part in watched.state.log_history if "driftscope/norm_growth" in part]
    assert [part["step"] for part in logged] == [2, 4]
    assert [part["driftscope/norm_growth"] for part in sink.seen if "driftscope/norm_growth" in part] == [
        part["driftscope/norm_growth"] for part in logged
    ]
    losses = [part["loss"] for part in watched.state.log_history if "loss" in part]
    assert losses == [part["loss"] for part in plain.state.log_history if "loss" in part]
    assert len(losses) == 2


def test_without_a_number_of_steps_it_follows_the_evaluations(
    tmp_path: Path, held: TrainingCapture, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, float]] = []
    model, _ = trainer(tmp_path, eval_strategy="steps", eval_steps=2)
    early = EarlyWarning(3, patience=2)
    model.add_callback(DriftCallback(held, log=seen.append, config=CONFIG, alphas=(), warning=early))
    with caplog.at_level(logging.WARNING, logger="driftscope"):
        model.train()
    assert len(seen) == 2
    assert seen[0].keys() >= {"driftscope/norm_growth", "driftscope/served_length"}
    grown = seen[-1]["driftscope/norm_growth"] > 1.1
    assert any("step 4: the carried state grows" in record.message for record in caplog.records) == grown
    assert grown


def test_only_the_first_process_measures_and_every_one_hands_over_its_drafter(held: TrainingCapture) -> None:
    from types import SimpleNamespace

    asked, logged = [], []

    def drafter(model: Any) -> Any:
        asked.append(model)
        return live_drafter()

    callback = DriftCallback(held, log=logged.append, every=1, drafter=drafter, alphas=(), warning=None)
    control = SimpleNamespace(should_log=True)
    for first in (False, True):
        state = SimpleNamespace(global_step=1, is_world_process_zero=first)
        callback.on_step_end(None, state, control, model="model")  # type: ignore[arg-type]
        assert len(logged) == int(first)
    assert asked == ["model", "model"]
    assert control.should_log
