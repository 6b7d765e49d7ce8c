"""Copy this file into your test suite: it guards a drafter against drift.

    pytest test_my_drafter.py --driftscope-checkpoint path/to/drafter --driftscope-target path/or/name

or once and for all in pyproject.toml, with paths relative to it:

    [tool.pytest.ini_options]
    driftscope_checkpoint = "path/to/drafter"
    driftscope_target = "path/or/name"

The first session measures (minutes); later ones read the kept run until checkpoint, target, prompts or a setting changes.
An assertion decides on a 95% interval over prompts: it holds, it fails, or too few prompts were measured to tell, which
fails too unless `allow_unknown=True`. With the 48 prompts that are shipped most figures can be told.
"""

from __future__ import annotations

import pytest

from driftscope import asserts


def test_the_carried_state_does_not_grow(drift_run):
    asserts.assert_norm_growth(drift_run, max_ratio=1.5, step=8)


def test_attention_stays_where_it_is_without_drafting(drift_run):
    asserts.assert_no_attention_drift(drift_run, max_displacement=0.1, max_sink_loss=0.1, max_self_excess=0.1)


def test_half_of_the_length_survives_noise(drift_run):
    asserts.assert_noise_robust(drift_run, alpha=0.5, keep=0.5)


def test_enough_is_accepted(drift_run):
    # Drafted tokens per round, without the bonus token: what vLLM logs minus 1.
    asserts.assert_acceptance(drift_run, min_served=1.0)


def test_nothing_else_is_wrong(drift_run):
    # A finding that you live with goes into `ignore`; `driftscope explain DS108` says what it means.
    asserts.assert_no_findings(drift_run, ignore=["DS108"])


@pytest.mark.skip(reason="name the folder of your last release")
def test_not_worse_than_the_last_release(drift_run, drift_run_factory):
    asserts.assert_not_worse(drift_run, drift_run_factory("path/to/last/release"))


@pytest.mark.skip(reason="name a drafter of yours")
@pytest.mark.drafter(checkpoint="path/to/other/drafter")
def test_another_drafter(drift_run):
    asserts.assert_no_findings(drift_run)
