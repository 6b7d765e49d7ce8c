"""The example drafters with their real target, in float32, against an engine's loop and against plain full matrices.

DRIFTSCOPE_TEST_TARGET and DRIFTSCOPE_TEST_CHECKPOINTS (separated as in PATH) name others to test with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import naive
from driftscope.captures.capture import Capture, capture
from driftscope.chain.interventions import Noise
from driftscope.chain.measure import BUCKETS, StepMeasure
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints.reading.aux_ids import default_boundaries
from driftscope.drafter.norms import rms
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.stats.acceptance import served_walk
from driftscope.target.model import Target, load_target
from driftscope.target.prompts import load_prompts, tokenize_prompts

ROOT = Path(__file__).parents[1]
TARGET = Path(os.environ.get("DRIFTSCOPE_TEST_TARGET", ROOT / "build" / "target"))
CHECKPOINTS = [Path(path) for path in os.environ.get("DRIFTSCOPE_TEST_CHECKPOINTS", "").split(os.pathsep) if path] or [
    ROOT / "examples" / "smollm2" / "checkpoints" / name for name in ("eagle3", "fc-norm", "post-norm", "eagle3.1")
]
PROMPTS, NEW_TOKENS, DEPTH = 8, 24, 8
SETTINGS = Settings(depth=DEPTH, horizon=DEPTH, sinks=(0,))
NEAR_TIE = 1e-3
"""Two logits closer than this may change places with the order of summation."""

pytestmark = pytest.mark.real


@pytest.fixture(scope="session")
def target() -> Target:
    if not (TARGET / "config.json").is_file():
        pytest.skip(f"no target at {TARGET}: python examples/smollm2/target.py makes it")
    return load_target(TARGET, device="cpu")


@pytest.fixture(scope="session")
def captures(target: Target) -> list[Capture]:
    """Prompts of every category."""
    prompts = load_prompts(None)
    spread = prompts[:: len(prompts) // PROMPTS][:PROMPTS]
    kept, _ = tokenize_prompts(spread, target.tokenizer, max_tokens=400)
    return capture(target, kept, max_new_tokens=NEW_TOKENS, boundaries=default_boundaries(target.num_layers))


@pytest.fixture(scope="session", params=CHECKPOINTS, ids=lambda path: path.name)
def pair(request: pytest.FixtureRequest, target: Target) -> Pair:
    if not request.param.exists():
        pytest.skip(f"no checkpoint at {request.param}")
    return load_pair(request.param, target)


@pytest.fixture(scope="session")
def plain(pair: Pair) -> dict[str, Tensor]:
    """The weights, for the plain loops."""
    assert naive.unknown_switches(pair.config) == []
    return {name: tensor.float() if name != "d2t" else tensor for name, tensor in pair.checkpoint.weights.items()}


def embedding(pair: Pair) -> Tensor:
    return pair.target.embedding_weight


@dataclass(frozen=True)
class Round:
    """One round of speculative decoding."""

    anchor: int
    accepted: int
    gap: float
    """By how much the closest of the choices that decided it was made: drafted tokens up to the first rejection."""


def serve(pair: Pair, weights: dict[str, Tensor], prompt: list[int], text: list[int]) -> Iterator[Round]:
    """Speculative decoding with the target in the loop, features from its own verification. `text` is filled."""
    from transformers import DynamicCache

    model, config = pair.target.model, pair.config
    cache = DynamicCache(config=model.config)

    def run(tokens: list[int]) -> tuple[Tensor, Tensor]:
        out: Any = model(input_ids=torch.tensor([tokens]), cache=cache, use_cache=True, output_hidden_states=True)
        features = torch.cat([out.hidden_states[b][0] for b in config.aux_boundaries or ()], -1)
        return out.logits[0].argmax(-1), naive.fuse(config, weights, features)

    best, fused = run(prompt)
    text[:] = [*prompt, int(best[-1])]
    while True:
        anchor = len(text) - 2
        past = naive.prefill(config, weights, embedding(pair), torch.tensor(text), fused, anchor)
        steps, _ = naive.speculate_cached(
            config, weights, embedding(pair), torch.tensor(text[-1]), fused[anchor], past, DEPTH
        )
        drafts = [int(step["drafted"]) for step in steps]
        best, verified = run([text[-1], *drafts])
        accepted = next((i for i, draft in enumerate(drafts) if draft != best[i]), DEPTH)
        two = torch.stack([step["logits"].topk(2).values for step in steps[: accepted + 1]])
        text += [*drafts[:accepted], int(best[accepted])]
        fused = torch.cat([fused, verified[: accepted + 1]])
        if accepted < DEPTH:
            cache.crop(accepted - DEPTH)
        yield Round(anchor, accepted, float((two[:, 0] - two[:, 1]).min()))


def accepted_counts(subject: Subject, steps: list[dict[str, Tensor]]) -> np.ndarray:
    return joint(match_matrix(to_numpy(steps))).sum(1)


@torch.no_grad()
def test_an_engines_loop_makes_the_rounds_of_the_served_walk(
    pair: Pair, captures: list[Capture], plain: dict[str, Tensor]
) -> None:
    compared = ties = prompts = 0
    # Half of them: the loop verifies every round with the target, which is what takes the time.
    served = captures[::2]
    for record in served:
        subject = Subject(pair, record, SETTINGS)
        walk = served_walk(accepted_counts(subject, subject.clean("drafted")), DEPTH)
        expected = [(int(subject.anchors[i]), n) for i, n in zip(walk.visited, walk.accepted.tolist(), strict=True)]
        text: list[int] = []
        rounds = serve(pair, plain, record.token_ids[: record.prompt_length].tolist(), text)
        before = compared
        for (anchor, accepted), made in zip(expected, rounds, strict=False):
            horizon = slice(anchor + 1, anchor + 2 + DEPTH)
            same = (
                text[: made.anchor + 2 + made.accepted] == record.token_ids[: made.anchor + 2 + made.accepted].tolist()
            )
            # From a near tie on, the two may be on different texts.
            if bool(record.near_tie[horizon.start - 1 : horizon.stop - 1].any()) or made.gap < NEAR_TIE:
                ties += 1
                break
            assert same, f"{record.prompt_id}: another text at anchor {anchor}, and no near tie"
            assert (made.anchor, made.accepted) == (anchor, accepted), record.prompt_id
            compared += 1
        prompts += compared > before
    assert prompts >= len(served) - 1
    assert ties <= len(served) // 4, f"{ties} near ties in {compared + ties} rounds"
    assert compared >= 3 * len(served)


def observed(subject: Subject, sites: tuple[str, ...]) -> list[dict[str, Tensor]]:
    """The quantities of each step, with the values of `sites` beside them."""
    drafter = subject.pair.drafter
    measure = StepMeasure(drafter, subject.text, subject.passed.baseline, subject.settings.sinks, subject.anchors)

    def both(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**measure(step, rows, values), **{f"value/{name}": values[name].clone() for name in sites}}

    return subject.chains("drafted", measure=both)


def same_state(seen: Tensor, wanted: Tensor) -> None:
    """Equal but for float32 rounding, which goes with the size of the whole state."""
    torch.testing.assert_close(seen, wanted, rtol=0, atol=1e-4 * float(rms(wanted)))


@torch.no_grad()
def test_the_numbers_are_those_of_plain_full_matrices(
    pair: Pair, captures: list[Capture], plain: dict[str, Tensor]
) -> None:
    subject = Subject(pair, captures[0], Settings(depth=DEPTH, horizon=DEPTH, sinks=(0, 5), anchors=3))
    text = subject.text
    steps = observed(subject, pair.drafter.step_sites)
    fused = naive.fuse(pair.config, plain, text.features)
    rows = len(text.token_ids) - 1
    whole = naive.forward(pair.config, plain, fused[:rows], embedding(pair)[text.token_ids[1:]], torch.arange(rows))
    for i, anchor in enumerate(subject.anchors.tolist()):
        same_state(steps[0]["value/carry"][i], whole["carry"][anchor])
        chain = naive.speculate(pair.config, plain, embedding(pair), text.token_ids, fused, anchor, DEPTH)
        for step, row in zip(steps, chain, strict=True):
            if float(row["logits"].topk(2).values.diff().abs()) < NEAR_TIE:
                break
            assert int(step["drafted"][i]) == int(row["drafted"])
            same_state(step["value/carry"][i], row["carry"])
            mass = naive.masses(row["attention"], anchor, text.prompt_length, (0, 5))
            torch.testing.assert_close(step["mass"][i, 0, :, : len(naive.BUCKETS)], mass, atol=1e-5, rtol=1e-4)
    assert BUCKETS[:-1] == naive.BUCKETS


@torch.no_grad()
def test_step_one_is_the_baseline_and_norms_are_numpys(pair: Pair, captures: list[Capture]) -> None:
    subject = Subject(pair, captures[1], SETTINGS)
    sites = tuple(name for name in pair.drafter.step_sites if not name.endswith(("attention", "logits")))
    steps = observed(subject, sites)
    first = steps[0]
    torch.testing.assert_close(first["matched_growth"], torch.ones(len(subject.anchors)), atol=1e-5, rtol=0)
    torch.testing.assert_close(first["excess"], torch.zeros_like(first["excess"]), atol=1e-5, rtol=0)
    for step in steps:
        torch.testing.assert_close(step["mass"].sum(-1), torch.ones(step["mass"].shape[:-1]), atol=1e-5, rtol=0)
        for name in sites:
            value = step[f"value/{name}"].numpy().astype(np.float64)
            size = np.sqrt((value**2).mean(-1))
            size = size.mean(-1) if size.ndim == 2 else size
            np.testing.assert_allclose(step[f"rms/{name}"].numpy(), size, rtol=1e-5, err_msg=name)


@torch.no_grad()
def test_noise_on_the_state_costs_acceptance(pair: Pair, captures: list[Capture]) -> None:
    clean = noisy = 0
    for record in captures:
        subject = Subject(pair, record, SETTINGS)
        noise = torch.randn(
            DEPTH, len(subject.anchors), pair.config.hidden_size, generator=torch.Generator().manual_seed(0)
        )
        clean += accepted_counts(subject, subject.clean("drafted")).sum()
        noisy += accepted_counts(subject, subject.chains("drafted", interventions=[Noise("state", 4.0, noise)])).sum()
    assert noisy < 0.5 * clean
