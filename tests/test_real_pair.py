"""The example drafters with their real target, in float32, against an engine's loop and against plain full matrices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import naive
from driftscope import stats
from driftscope.captures.capture import Capture, capture
from driftscope.chain.interventions import Noise
from driftscope.chain.measure import BUCKETS, StepMeasure
from driftscope.chain.pair import Pair, load_pair
from driftscope.chain.prompt_chains import Settings, Subject
from driftscope.checkpoints.reading.aux_ids import default_boundaries
from driftscope.runs.rows import joint, match_matrix, to_numpy
from driftscope.stats.acceptance import served_walk
from driftscope.target.model import Target
from driftscope.target.prompts import load_prompts, tokenize_prompts
from tests.closeness import assert_same
from tests.example_pair import CHECKPOINTS, real_target
from tests.sequential import SUMS

PROMPTS, NEW_TOKENS, DEPTH = 8, 24, 8
FULL_LENGTH = 128
"""What a probe records of a prompt."""
SETTINGS = Settings(depth=DEPTH, horizon=DEPTH, sinks=(0,))
NEAR_TIE = 1e-3
"""Two logits closer than this may change places with the order of summation."""

pytestmark = [pytest.mark.real, pytest.mark.numeric("plain")]


@pytest.fixture(scope="session")
def target() -> Target:
    return real_target()


@pytest.fixture(scope="session")
def captures(target: Target) -> list[Capture]:
    return recorded(target, NEW_TOKENS)


@pytest.fixture(scope="session")
def long_captures(target: Target) -> list[Capture]:
    return recorded(target, FULL_LENGTH)


def recorded(target: Target, new_tokens: int) -> list[Capture]:
    """Prompts of every category."""
    prompts = load_prompts(None)
    spread = prompts[:: len(prompts) // PROMPTS][:PROMPTS]
    kept, _ = tokenize_prompts(spread, target.tokenizer, max_tokens=400)
    return capture(target, kept, max_new_tokens=new_tokens, boundaries=default_boundaries(target.num_layers))


@pytest.fixture(scope="session")
def longer(target: Target) -> list[Capture]:
    """As many texts as intervals need, long enough that a few anchors are a choice."""
    prompts = load_prompts(None)
    kept, _ = tokenize_prompts(prompts[::3], target.tokenizer, max_tokens=400)
    return capture(target, kept, max_new_tokens=64, boundaries=default_boundaries(target.num_layers))


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
def served_alike(pair: Pair, plain: dict[str, Tensor], records: list[Capture]) -> tuple[int, int, int]:
    """Assert that the rounds of both are the same up to the first near tie of each prompt.

    Returns the rounds compared, those of the walks, and the prompts that a near tie ended.
    """
    compared = walked = ties = 0
    for record in records:
        subject = Subject(pair, record, SETTINGS)
        walk = served_walk(accepted_counts(subject, subject.clean("drafted")), DEPTH)
        expected = [(int(subject.anchors[i]), n) for i, n in zip(walk.visited, walk.accepted.tolist(), strict=True)]
        walked += len(expected)
        text: list[int] = []
        rounds = serve(pair, plain, record.token_ids[: record.prompt_length].tolist(), text)
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
    return compared, walked, ties


def test_an_engines_loop_makes_the_rounds_of_the_served_walk(
    pair: Pair, captures: list[Capture], plain: dict[str, Tensor]
) -> None:
    """Every second prompt, and 24 tokens of it: the loop verifies each round with the target, which takes a minute a
    drafter. A fault of the walk shows within a few rounds, since each begins where the one before it ended; what only long
    texts have (loops, near ties, many rounds in a row) is in the nightly form below."""
    compared, _, ties = served_alike(pair, plain, captures[::2])
    assert ties <= 1, f"{ties} near ties in {compared + ties} rounds"
    assert compared >= 3 * len(captures[::2])


@pytest.mark.nightly
def test_an_engines_loop_makes_the_rounds_of_the_served_walk_on_whole_texts(
    pair: Pair, long_captures: list[Capture], plain: dict[str, Tensor]
) -> None:
    """All prompts, each as long as a probe records it."""
    compared, walked, ties = served_alike(pair, plain, long_captures)
    assert len(long_captures) == PROMPTS
    assert compared >= walked / 2, f"{compared} of {walked} rounds, {ties} near ties"


def rounded(pair: Pair, steps: int = 1) -> dict[str, int]:
    """Terms and sums of the chains (tests/closeness.py): fc reads the widest row."""
    config = pair.config
    widest = max(config.num_aux * config.target_hidden_size, 2 * config.hidden_size, config.intermediate_size)
    return {"terms": widest, "sums": SUMS * steps}


def observed(subject: Subject, sites: tuple[str, ...]) -> list[dict[str, Tensor]]:
    """The quantities of each step, with the values of `sites` beside them."""
    drafter = subject.pair.drafter
    measure = StepMeasure(drafter, subject.text, subject.passed.baseline, subject.settings.sinks, subject.anchors)

    def both(step: int, rows: slice, values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**measure(step, rows, values), **{f"value/{name}": values[name].clone() for name in sites}}

    return subject.chains("drafted", measure=both)


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
        assert_same(steps[0]["value/carry"][i], whole["carry"][anchor], **rounded(pair))
        chain = naive.speculate(pair.config, plain, embedding(pair), text.token_ids, fused, anchor, DEPTH)
        for k, (step, row) in enumerate(zip(steps, chain, strict=True), start=1):
            if float(row["logits"].topk(2).values.diff().abs()) < NEAR_TIE:
                break
            assert int(step["drafted"][i]) == int(row["drafted"])
            assert_same(step["value/carry"][i], row["carry"], **rounded(pair, k))
            mass = naive.masses(row["attention"], anchor, text.prompt_length, (0, 5))
            assert_same(step["mass"][i, 0, :, : len(naive.BUCKETS)], mass, **rounded(pair, k), size=1)
    assert BUCKETS[:-1] == naive.BUCKETS


@torch.no_grad()
def test_step_one_is_the_baseline_and_norms_are_numpys(pair: Pair, captures: list[Capture]) -> None:
    subject = Subject(pair, captures[1], SETTINGS)
    sites = tuple(name for name in pair.drafter.step_sites if not name.endswith(("attention", "logits")))
    steps = observed(subject, sites)
    first = steps[0]
    assert_same(first["matched_growth"], torch.ones(len(subject.anchors)), **rounded(pair))
    assert_same(first["excess"], torch.zeros_like(first["excess"]), **rounded(pair), size=1)
    for step in steps:
        assert_same(step["mass"].sum(-1), torch.ones(step["mass"].shape[:-1]), **rounded(pair))
        for name in sites:
            value = step[f"value/{name}"].numpy().astype(np.float64)
            size = np.sqrt((value**2).mean(-1))
            size = size.mean(-1) if size.ndim == 2 else size
            assert_same(step[f"rms/{name}"], size, name, terms=value.shape[-1])


@torch.no_grad()
def test_a_first_look_and_the_full_run_agree_on_the_onset(pair: Pair, longer: list[Capture]) -> None:
    """Of all, 32 and 8 anchors a prompt: the full run's onset lies within what the first look says of its own."""
    counts = (None, 32, 8)
    means: dict[str, dict[int | None, list[np.ndarray]]] = {
        name: {n: [] for n in counts} for name in ("displaced", "norm_up")
    }
    for record in longer:
        settings = [Settings(depth=DEPTH, horizon=DEPTH, anchors=count, spread=True) for count in counts]
        every, *some = (Subject(pair, record, part) for part in settings)
        if not len(every.anchors):
            continue
        steps = every.chains("drafted")
        excess = torch.stack([step["excess"].flatten(1, 2) for step in steps], 1).numpy()
        size = torch.stack([step["rms/carry"] for step in steps], 1).double().log().numpy()
        for count, subject in zip(counts, (every, *some), strict=True):
            # Chains do not know of each other: those of few anchors are rows of all.
            place = torch.searchsorted(every.anchors, subject.anchors).numpy()
            assert len(place) == (len(every.anchors) if count is None else min(count, len(every.anchors)))
            place = place[~subject.looping]
            if len(place):
                means["displaced"][count].append(excess[place].mean(0))
                means["norm_up"][count].append((size[place] - size[place, :1]).mean(0))
    sizes = {"displaced": stats.PRACTICAL_MASS, "norm_up": stats.PRACTICAL_LOG_RMS}
    for name, by_count in means.items():
        found = {}
        for count, parts in by_count.items():
            moved = name == "displaced"
            least, most = (
                kind(np.stack(parts)) if moved else np.stack(parts)
                for kind in (stats.shared_displacement, stats.most_displacement)
            )
            least, most = (values - values[:, :1] for values in (least, most))
            start = stats.onset(least, sizes[name])
            assert start != "not measurable"
            found[count] = start, stats.onset_spread(least, sizes[name], found=start, most=most)
        full, known = found[None]
        last = DEPTH + 1
        for count in (32, 8):
            _, spread = found[count]
            assert spread is not None
            assert known is not None
            low, high = spread.low or last, spread.high or last
            assert low <= (full if isinstance(full, int) else last) <= high, (name, found)
            assert max(low, known.low or last) <= min(high, known.high or last), (name, found)


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
