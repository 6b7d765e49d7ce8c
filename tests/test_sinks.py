from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from driftscope.errors import TargetError
from driftscope.target.sinks import detect_sinks, key_alpha, sinks_from_attention
from tests.closeness import assert_same
from tests.tiny_target import EOS, tiny_target


def uniform(heads: int, length: int) -> Tensor:
    """Causal rows that look at all keys alike."""
    rows = torch.ones(length, length).tril()
    return (rows / rows.sum(-1, keepdim=True)).expand(heads, -1, -1).clone()


def planted(heads: int, length: int, position: int, mass: float) -> Tensor:
    """Rows after `position` put `mass` more of their probability on it."""
    attention = uniform(heads, length)
    attention[:, position + 1 :] *= 1 - mass
    attention[:, position + 1 :, position] += mass
    return attention


def texts(count: int, length: int = 70) -> list[SimpleNamespace]:
    generator = torch.Generator().manual_seed(1)
    return [SimpleNamespace(token_ids=torch.randint(0, EOS, (length,), generator=generator)) for _ in range(count)]


@pytest.mark.numeric("plain")
def test_alpha_is_the_mean_over_the_rows_that_see_the_key() -> None:
    attention = planted(2, 10, 3, 0.5)
    for k in range(10):
        expected = attention[:, k:, k].mean(-1)
        assert_same(key_alpha(attention)[:, k], expected, terms=10)


@pytest.mark.numeric("plain")
def test_planted_sinks_are_found() -> None:
    both = torch.cat([planted(2, 64, 0, 0.6), planted(3, 64, 5, 0.6), uniform(5, 64)])
    report = sinks_from_attention([both, both])
    assert report.positions == (0, 5)
    assert report.heads == 20
    assert_same(report.shares[[0, 1, 5]], [0.2, 0.0, 0.3])


def test_share_and_threshold_are_limits_to_exceed() -> None:
    one_in_ten = torch.cat([planted(1, 64, 4, 0.6), uniform(9, 64)])
    assert sinks_from_attention([one_in_ten]).positions == ()
    assert sinks_from_attention([one_in_ten], share=0.05).positions == (4,)
    assert sinks_from_attention([one_in_ten], share=0.05, threshold=0.7).positions == ()


def test_late_positions_and_late_rows_do_not_count() -> None:
    assert sinks_from_attention([planted(2, 64, 40, 0.9)]).positions == ()
    late = uniform(2, 200)
    late[:, 64:] = 0
    late[:, 64:, 7] = 1
    assert sinks_from_attention([late]).positions == ()


def test_short_texts_leave_late_candidates_unmeasured() -> None:
    report = sinks_from_attention([planted(2, 20, 0, 0.6)])
    assert report.positions == (0,)
    assert np.isfinite(report.shares).tolist() == [True] * 10 + [False] * 22


def test_learned_sinks_take_mass() -> None:
    attention = planted(4, 64, 0, 0.6) * 0.3
    assert sinks_from_attention([attention]).positions == ()


@pytest.mark.parametrize(
    ("family", "changes"),
    [("llama", {}), ("qwen3", {}), ("gpt_oss", {"num_local_experts": 2, "num_experts_per_tok": 1})],
)
def test_target_gives_the_shares_of_its_attention(family: str, changes: dict[str, int]) -> None:
    target = tiny_target(family, **changes)
    before = target.model.config._attn_implementation
    report = detect_sinks(target, texts(2))
    assert target.model.config._attn_implementation == before
    target.model.set_attn_implementation("eager")
    by_hand = [
        layer.float()
        for text in texts(2)
        for layer in target.forward(text.token_ids[None, :64], output_attentions=True).attentions
    ]
    over = sum((torch.stack([a[0, :, k:, k].mean(-1) for k in range(32)]) > 0.3).sum(1) for a in by_hand)
    np.testing.assert_allclose(report.shares, np.asarray(over) / report.heads)
    assert report.heads == 2 * 4 * 4


def test_planted_sink_of_a_model_is_found() -> None:
    """One token is given a key that all queries like; it stands at position 3 of every text."""
    target = tiny_target(num_hidden_layers=2, rope_parameters={"rope_type": "default", "rope_theta": 1e30})
    sink, column = EOS, 31
    with torch.no_grad():
        target.embedding_weight[:, column] = 1.0
        target.embedding_weight[sink] = 0.0
        target.embedding_weight[sink, column] = -30.0
        for layer in target.layers:
            # Every query reads the column of ones into the one frequency that does not turn.
            layer.self_attn.q_proj.weight.zero_()
            layer.self_attn.k_proj.weight.zero_()
            layer.self_attn.q_proj.weight[7::8, column] = 30.0
            layer.self_attn.k_proj.weight[7::8, column] = -30.0
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    chosen = texts(3)
    for text in chosen:
        text.token_ids[3] = sink
    assert detect_sinks(target, chosen).positions == (3,)


def test_windows_under_the_rows_are_left_out() -> None:
    sizes = {"num_local_experts": 2, "num_experts_per_tok": 1}
    kinds = ["sliding_attention", "full_attention"] * 2
    narrow = tiny_target("gpt_oss", sliding_window=16, layer_types=kinds, **sizes)
    wide = tiny_target("gpt_oss", sliding_window=64, layer_types=kinds, **sizes)
    assert detect_sinks(narrow, texts(1)).heads == 2 * 4
    assert detect_sinks(wide, texts(1)).heads == 4 * 4


def test_model_without_probabilities_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    monkeypatch.setattr(target.model, "set_attn_implementation", lambda which: None)
    with pytest.raises(TargetError, match=r"0 attention matrices for 4 layers.*--sink"):
        detect_sinks(target, texts(1))


def test_rows_that_do_not_sum_to_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target()
    halves = SimpleNamespace(attentions=tuple(uniform(4, 64)[None] * 0.5 for _ in range(4)))
    monkeypatch.setattr(target, "forward", lambda *args, **kwargs: halves)
    with pytest.raises(TargetError, match=r"rows sum to 0\.500"):
        detect_sinks(target, texts(1))
