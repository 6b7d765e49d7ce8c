"""The recipe of the example drafters: what is held out, what a batch holds, and what a step learns from."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
SIZE, VOCAB, DRAFT = 32, 100, 50
CONFIG: dict[str, Any] = {
    "hidden_size": SIZE, "intermediate_size": 64, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 8,
    "rms_norm_eps": 1e-5, "rope_theta": 1e4, "fc_norm": True, "norm_output": False,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def example() -> Iterator[None]:
    folder = str(ROOT / "examples" / "smollm2")
    sys.path.insert(0, folder)
    yield
    sys.path.remove(folder)


def test_the_held_out_prompts_are_as_many_of_each_kind_as_the_shipped_ones_and_others():
    import turns

    rows = [json.loads(line) for line in (ROOT / "examples/smollm2/held-out.jsonl").read_text().splitlines()]
    shipped = sorted((ROOT / "probes" / "prompts").glob("*.jsonl"))
    counts = {path.stem: len(path.read_text().splitlines()) for path in shipped}
    assert {kind: sum(row["category"] == kind for row in rows) for kind in counts} == counts
    assert len({row["id"] for row in rows}) == len(rows)
    assert all(row["messages"][-1]["role"] == "user" for row in rows)
    assert not turns.held_out(tuple(shipped)) & turns.held_out((ROOT / "examples/smollm2/held-out.jsonl",))


def test_no_user_turn_is_left_with_a_blank_or_shares_words_with_a_held_out_prompt():
    import turns

    held, rng = turns.held_out(), random.Random(0)
    assert len(held) > 1000
    for kind, _ in turns.KINDS:
        for _ in range(200):
            text = " ".join(kind(rng))
            assert kind is turns.snippet or "{" not in text  # code has braces of its own
            assert not held & turns.eights(text), (kind.__name__, text)


def test_orthogonal_keeps_the_singular_vectors_and_evens_the_values():
    import muon

    x = torch.randn(12, 30, generator=torch.Generator().manual_seed(0))
    for matrix in (x, x.mT):
        update = muon.orthogonal(matrix)
        values = torch.linalg.svdvals(update)
        assert values.min() > 0.5
        assert values.max() < 1.3
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        core = left.mT @ update @ right.mT
        torch.testing.assert_close(core - core.diag().diag(), torch.zeros_like(core), atol=1e-4, rtol=0)


def drafter() -> tuple[Any, dict[str, torch.Tensor]]:
    from ttt import TTTDrafter

    g = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = TTTDrafter(CONFIG, torch.randn(VOCAB, SIZE, generator=g), torch.randn(DRAFT, SIZE, generator=g))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8 if weight.ndim == 2 else 1)
    batch = {
        "ids": torch.randint(0, VOCAB, (3, 20), generator=g), "sizes": torch.tensor([20, 17, 15]),
        "features": torch.randn(3, 20, 3, SIZE, generator=g), "top_ids": torch.randint(0, DRAFT, (3, 20, 4), generator=g),
        "top_probabilities": torch.rand(3, 20, 4, generator=g).softmax(-1),
    }  # fmt: skip
    return model, batch


def test_the_loss_of_a_batch_is_that_of_its_texts_without_padding():
    model, batch = drafter()
    starts, steps = torch.tensor([4, 9, 2]), 3
    _, together = model.losses(**batch, steps=1, decay=0.8, starts=starts)
    whole = model.losses(**batch, steps=steps, decay=0.8, starts=starts)[0]
    # The loss of step k is a mean over the anchors that have a target k tokens on.
    total = 0.0
    for k in range(1, steps + 1):
        parts, counts = [], []
        for i, size in enumerate(batch["sizes"].tolist()):
            one = {
                name: value[i : i + 1, :size] if name != "sizes" else value[i : i + 1] for name, value in batch.items()
            }
            upto = [model.losses(**one, steps=n, decay=1.0, starts=starts[i : i + 1])[0] for n in (k - 1, k) if n]
            parts.append(upto[-1] - (upto[0] if k > 1 else 0))
            counts.append(size - 1 - k - int(starts[i]))
        mean = sum(part * count for part, count in zip(parts, counts, strict=True)) / sum(counts)
        total = total + 0.8 ** (k - 1) * mean
    torch.testing.assert_close(whole, total, rtol=1e-5, atol=1e-5)
    assert together.shape == (1,)


def test_drawing_anchors_leaves_step_one_as_it_is_and_later_tokens_unseen():
    model, batch = drafter()
    all_of_them = model.losses(**batch, steps=3, decay=0.8)[1]
    drawn = model.losses(**batch, steps=3, decay=0.8, share=0.5)[1]
    assert torch.equal(all_of_them[0], drawn[0])
    # A feature behind the last anchor that is asked for cannot reach the loss.
    before = model.losses(**batch, steps=1, decay=0.8)[0]
    batch["features"][1, 15:] += 5
    torch.testing.assert_close(model.losses(**batch, steps=1, decay=0.8)[0], before)


def material() -> Any:
    from training import Material

    sizes = torch.randint(20, 60, (40,), generator=torch.Generator().manual_seed(1))
    count = int(sizes.sum())
    data = {
        "ids": torch.arange(count), "sizes": sizes, "prompt_lengths": sizes // 3, "features": torch.zeros(count, 3, 4),
        "top_ids": torch.zeros(count, 2, dtype=torch.int16), "top_probabilities": torch.zeros(count, 2),
    }  # fmt: skip
    none: Any = None
    return Material(data, none, torch.arange(3), torch.zeros(3, 4), torch.zeros(3, 4), {})


def test_a_run_that_goes_on_sees_the_batches_that_were_left():
    from training import batches

    args = argparse.Namespace(seed=3, batch=300, tokens=4000, device="cpu", dtype="float32")
    whole = list(batches(material(), args))
    middle = whole[5][0]
    rest = list(batches(material(), args, seen=middle))
    assert [total for total, _ in rest] == [total for total, _ in whole[6:]]
    assert all(torch.equal(a.ids, b.ids) for (_, a), (_, b) in zip(whole[6:], rest, strict=True))
    assert whole[-1][0] >= args.tokens > whole[-2][0]
    assert all(batch.ids.numel() <= args.batch for _, batch in whole)


def test_an_epoch_holds_every_conversation_once():
    from training import order

    one = material()
    rows = order(one, 300, torch.Generator().manual_seed(0))
    assert sorted(i for row in rows for i in row) == list(range(one.conversations))
