"""What a probe of a target that fills a machine of its own takes, counted from shapes: nothing is loaded, nothing is run.

    python benchmarks/plan.py [--prompts 48] [--prompt-tokens 400] [--new-tokens 512] [--depth 8] [--markdown]

Written out for Kimi K2.6 with its EAGLE 3.1 drafter with latent attention (MLA). Parameters follow from published configs
(61 layers, 384 routed experts of which 8 speak, latents of 1536 and 512; the drafter: one dense layer over three aux
features, head over the whole vocabulary). Bytes and FLOPs are exact for these shapes. Times are bounds, not measurements:
the larger of FLOPs over `--tflops` and bytes over `--memory-tbs`, at `--share` of either; `--link-gbs` moves files.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass

from driftscope.chain.room import USUAL
from driftscope.checkpoints.config import DrafterConfig, Rope
from driftscope.checkpoints.sizes import expected_shapes


@dataclass(frozen=True)
class Moe:
    """A target with latent attention and routed experts behind its first layers."""

    layers: int
    hidden: int
    vocab: int
    heads: int
    q_rank: int
    kv_rank: int
    nope: int
    rope: int
    value: int
    dense_layers: int
    dense_width: int
    experts: int
    active: int
    shared: int
    expert_width: int
    expert_bytes: float
    """Per weight of a routed expert; everything else has two."""

    @property
    def attention(self) -> int:
        """Weights of one layer's attention."""
        queries = self.hidden * self.q_rank + self.q_rank * self.heads * (self.nope + self.rope)
        keys = self.hidden * (self.kv_rank + self.rope) + self.kv_rank * self.heads * (self.nope + self.value)
        return queries + keys + self.heads * self.value * self.hidden

    def weights(self, routed: int) -> int:
        """Weights of the model with so many routed experts a layer."""
        sparse = self.layers - self.dense_layers
        dense = self.dense_layers * 3 * self.hidden * self.dense_width
        experts = sparse * (routed + self.shared) * 3 * self.hidden * self.expert_width
        router = sparse * self.experts * self.hidden
        return self.layers * self.attention + dense + experts + router + self.ends

    @property
    def ends(self) -> int:
        """Weights of embedding and head."""
        return 2 * self.vocab * self.hidden

    @property
    def stored(self) -> float:
        """Bytes of the checkpoint."""
        routed = (self.layers - self.dense_layers) * self.experts * 3 * self.hidden * self.expert_width
        return routed * self.expert_bytes + 2.0 * (self.weights(self.experts) - routed)

    @property
    def cache(self) -> int:
        """Bytes of KV cache per token, in bfloat16: the latent and the rotated key."""
        return 2 * self.layers * (self.kv_rank + self.rope)


KIMI = Moe(
    layers=61, hidden=7168, vocab=163840, heads=64, q_rank=1536, kv_rank=512, nope=128, rope=64, value=128,
    dense_layers=1, dense_width=18432, experts=384, active=8, shared=1, expert_width=2048,
    # Four bits, and a scale of two bytes for 32 weights.
    expert_bytes=0.5 + 2 / 32,
)  # fmt: skip
DRAFTER = DrafterConfig(
    hidden_size=7168, target_hidden_size=7168, intermediate_size=18432, num_heads=64, num_kv_heads=64, head_dim=192,
    vocab_size=163840, draft_vocab_size=163840, aux_boundaries=(2, 30, 58), fc_norm=True, carry="post",
    q_lora_rank=1536, kv_lora_rank=512, qk_rope_head_dim=64, v_head_dim=128, rope=Rope(theta=5e4, layout="interleaved"),
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What is to be probed."""

    prompts: int = 48
    prompt_tokens: int = 400
    new_tokens: int = 512
    depth: int = 8
    horizon: int = 16
    sets: int = 2
    """Sets of chains over each text: drafted and text-fed."""

    @property
    def tokens(self) -> int:
        """Of one text."""
        return self.prompt_tokens + self.new_tokens

    @property
    def anchors(self) -> int:
        return max(0, self.new_tokens - self.horizon)


@dataclass(frozen=True)
class Machine:
    """Peaks, and the share of them that is reached."""

    tflops: float = 989.0
    memory_tbs: float = 4.8
    link_gbs: float = 1.0
    share: float = 0.4
    chips: int = 8
    """Of the engine; the probe has one."""

    def seconds(self, flops: float, read: float, chips: int = 1) -> float:
        """The larger of the two bounds."""
        reached = self.share * chips * 1e12
        return max(flops / (self.tflops * reached), read / (self.memory_tbs * reached))


@dataclass(frozen=True)
class Stage:
    """One step of the plan. None where a stage has no such figure."""

    name: str
    memory: float
    """Bytes that must be held at once."""
    moved: float | None
    """Bytes of files, written or fetched."""
    flops: float | None
    seconds: float
    note: str


def drafter_weights(config: DrafterConfig) -> int:
    """Weights that the drafter brings itself."""
    return sum(math.prod(shape) for shape in expected_shapes(config).values())


def row_bytes(config: DrafterConfig, size: int) -> int:
    """Bytes of one row's keys and values in the prefix."""
    values = config.v_head_dim or config.head_dim
    return config.num_layers * config.num_kv_heads * (config.head_dim + values) * size


def chain_flops(config: DrafterConfig, rows: int, seen: float) -> float:
    """Of `rows` rows of one step that see `seen` keys each, with the head."""
    shapes = expected_shapes(config)
    layer = sum(math.prod(s) for name, s in shapes.items() if name.startswith("layers.") and len(s) > 1)
    head = config.hidden_size * config.draft_vocab_size
    values = config.v_head_dim or config.head_dim
    attention = 2 * config.num_layers * config.num_heads * (config.head_dim + values) * seen
    return rows * (2.0 * (layer + head) + attention)


def dump_bytes(work: Work, hidden: int, states: int, size: int = 2) -> float:
    """Of all texts' states and tokens, as the engine writes them."""
    return float(work.prompts * work.tokens * (states * hidden * size + 8))


def capture_bytes(work: Work, hidden: int, layers: int, states: int, size: int = 2, final: int = 4) -> float:
    """Of the capture folder: the states again, the final one after the norm, norms by boundary, marks."""
    return float(work.prompts * work.tokens * (states * hidden * size + final * hidden + 4 * (layers + 1) + 9))


def plan(target: Moe, config: DrafterConfig, work: Work, machine: Machine) -> list[Stage]:
    """The stages, in order."""
    states = len(config.aux_boundaries or ()) + 1
    active = target.weights(target.active)
    engine = target.stored + work.prompts * work.tokens * target.cache
    prefill = 2.0 * active * work.prompts * work.tokens
    # A step of a batch reads about every expert once.
    decode = work.new_tokens * (target.stored + work.prompts * work.tokens * target.cache)
    dump = dump_bytes(work, target.hidden, states)
    folder = capture_bytes(work, target.hidden, target.layers, states)
    ends = 2.0 * target.ends
    weights = 2.0 * drafter_weights(config)
    # All captures; of one text at a time keys and values, features, a chunk of scores, and the logits of 256 rows.
    held = folder + work.tokens * (row_bytes(config, 2) + 2 * (states + 1) * target.hidden)
    held += USUAL + 256 * 4 * target.vocab
    prefix = chain_flops(config, work.prompts * work.tokens, work.tokens / 2)
    prefix -= 2.0 * config.hidden_size * config.draft_vocab_size * work.prompts * work.tokens
    steps = chain_flops(config, work.prompts * work.anchors * work.depth * work.sets, work.tokens * 0.75)
    confirm = 2.0 * work.prompts * work.new_tokens * target.hidden * target.vocab
    passes = work.prompts * work.depth * work.sets * (weights + 2.0 * target.vocab * target.hidden)
    return [
        Stage(
            "texts", engine, None, 2.0 * active * work.prompts * work.tokens,
            machine.seconds(prefill, decode, machine.chips),
            f"the engine continues {work.prompts} prompts greedily, in one batch",
        ),
        Stage(
            "states", engine, dump, prefill, machine.seconds(prefill, target.stored, machine.chips),
            f"one prefill of every text; {states} states of {target.hidden} a token in bfloat16",
        ),
        Stage("to the prober", 0.0, dump + ends, None, (dump + ends) / (machine.link_gbs * 1e9), "states and two shards"),
        Stage(
            "capture --from", ends + 5 * folder / work.prompts, folder, confirm, machine.seconds(confirm, folder),
            "embedding, norm and head only; head(final state) against the text",
        ),
        Stage(
            "probe --capture", ends + weights + held, None, prefix + steps, machine.seconds(prefix + steps, passes),
            f"{work.prompts * work.anchors:,} anchors, {work.depth} steps, drafted and text-fed",
        ),
    ]  # fmt: skip


def spelled(value: float | None, units: tuple[str, ...], base: float = 1000.0) -> str:
    """`4.7 GB`, `-` for None."""
    if value is None:
        return "-"
    power = 0
    while value >= base and power < len(units) - 1:
        value, power = value / base, power + 1
    return f"{value:.3g} {units[power]}"


BYTES, FLOPS = ("B", "kB", "MB", "GB", "TB"), ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")


def duration(seconds: float) -> str:
    """`0.4 s`, `3.1 min`."""
    return f"{seconds:.2g} s" if seconds < 90 else f"{seconds / 60:.2g} min"


def markdown(stages: list[Stage]) -> str:
    """The table of the docs."""
    lines = ["| stage | memory | files | work | at least | what |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for s in stages:
        memory = spelled(s.memory, BYTES) if s.memory else "-"
        cells = (s.name, memory, spelled(s.moved, BYTES), spelled(s.flops, FLOPS), duration(s.seconds), s.note)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in (Work, Machine):
        for name, field in kind.__dataclass_fields__.items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--markdown", action="store_true", help="a table instead of JSON")
    given = vars(parser.parse_args())
    work, machine = (kind(**{name: given[name] for name in kind.__dataclass_fields__}) for kind in (Work, Machine))
    stages = plan(KIMI, DRAFTER, work, machine)
    if given["markdown"]:
        print(markdown(stages))
        return
    about = {
        "target": {"weights": KIMI.weights(KIMI.experts), "active": KIMI.weights(KIMI.active), "bytes": KIMI.stored},
        "drafter": {"weights": drafter_weights(DRAFTER), "row_bytes": row_bytes(DRAFTER, 2)},
    }
    print(json.dumps({**about, "work": asdict(work), "stages": [asdict(stage) for stage in stages]}, indent=1))


if __name__ == "__main__":
    main()
