"""What the trainers of the example drafters share: features, batches, progress, and the checkpoint that is written."""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig


def options(description: str | None, out: Path) -> argparse.ArgumentParser:
    """A parser with the options that both know."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--features", type=Path, default=Path("build/smollm2/features"))
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--tokens", type=int, default=1_900_000, help="tokens seen, repetitions counted")
    parser.add_argument("--batch", type=int, default=2304, help="tokens of an update, at most")
    parser.add_argument("--decay", type=float, default=0.8)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=50, metavar="N", help="updates between resumable states")
    gpu = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    # float32 is faster on a CPU without bfloat16 units.
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16" if gpu else "float32")
    return parser


@dataclass(frozen=True)
class Material:
    """Features of the conversations, and the parts of the target that a drafter is trained with."""

    data: dict[str, Tensor]
    """Tensors of all tokens, one conversation after the other, and sizes and prompt_lengths [conversation]."""
    target: PretrainedConfig
    vocabulary: Tensor
    """Target ids of the draft vocabulary, ascending."""
    head: Tensor
    """[draft vocabulary, H]"""
    embedding: Tensor
    layers: dict[str, Tensor]
    """Weights of the last target layer that drafters read before, and `norm.weight`: where a warm start begins."""

    def published(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors of a checkpoint of `model`."""
        return published_state(model, self.head, self.vocabulary, self.target.vocab_size)

    @property
    def conversations(self) -> int:
        return len(self.data["sizes"])

    @property
    def tokens(self) -> int:
        return int(self.data["sizes"].sum())


def load_material(args: argparse.Namespace, layer: int = 27) -> Material:
    dtype = getattr(torch, args.dtype)
    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=dtype)
    shards = [load_file(path) for path in sorted(args.features.glob("[0-9]*.safetensors"))]
    if not shards:
        raise SystemExit(f"no features in {args.features}: examples/smollm2/features.py makes them")
    data = {name: torch.cat([shard[name] for shard in shards]) for name in shards[0]}
    vocabulary = load_file(args.features / "vocabulary.safetensors")["vocabulary"]
    head = target.lm_head.weight.detach()[vocabulary].to(args.device)
    embedding = target.get_input_embeddings().weight.detach().to(args.device)
    layers = {name: value.detach().float() for name, value in target.model.layers[layer].state_dict().items()}
    layers["norm.weight"] = target.model.norm.weight.detach().float()
    return Material(data, target.config, vocabulary, head, embedding, layers)


@dataclass(frozen=True)
class Batch:
    """Conversations, padded to the longest of them."""

    ids: Tensor
    sizes: Tensor
    starts: Tensor
    """The first anchor of each: the last token of its prompt."""
    features: Tensor
    top_ids: Tensor
    top_probabilities: Tensor


def order(material: Material, tokens: int, generator: torch.Generator) -> list[list[int]]:
    """One epoch: conversations with answers of about one length, up to `tokens` padded tokens, in random order."""
    sizes = material.data["sizes"].tolist()
    answers = (material.data["sizes"] - material.data["prompt_lengths"]).float()
    ranked = (answers + 20 * torch.rand(len(answers), generator=generator)).argsort().tolist()
    rows: list[list[int]] = [[]]
    for one in ranked:
        widest = max(sizes[i] for i in [*rows[-1], one])
        if rows[-1] and widest * (len(rows[-1]) + 1) > tokens:
            rows.append([])
        rows[-1].append(one)
    return [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]


def batches(material: Material, args: argparse.Namespace, seen: int = 0) -> Iterator[tuple[int, Batch]]:
    """Batches and the tokens seen with each, from `seen` to `args.tokens`: the same ones whenever a run goes on."""
    generator, total = torch.Generator().manual_seed(args.seed), 0
    offsets = material.data["sizes"].long().cumsum(0) - material.data["sizes"]
    while True:
        for rows in order(material, args.batch, generator):
            sizes = material.data["sizes"][rows].long()
            total += int(sizes.sum())
            if total > seen:
                places = (offsets[rows][:, None] + torch.arange(int(sizes.max()))).clamp(
                    max=len(material.data["ids"]) - 1
                )
                # What stands behind a conversation's end is never read: sizes say where it is.
                parts = [
                    material.data[name][places].to(args.device)
                    for name in ("ids", "features", "top_ids", "top_probabilities")
                ]
                ids, features, top_ids, top_probabilities = parts
                starts = (material.data["prompt_lengths"][rows].long() - 1).clamp(max=sizes - 3)
                dtype = getattr(torch, args.dtype)
                yield total, Batch(
                    ids.long(), sizes.to(args.device), starts.to(args.device), features.to(dtype), top_ids.long(),
                    top_probabilities,
                )  # fmt: skip
            if total >= args.tokens:
                return


def schedule(progress: float, step: int, warmup: int = 20) -> float:
    """Linear warm-up over updates, constant, then linear to zero over the last 40% of the budget."""
    return max(0.0, min((step + 1) / warmup, 1.0, (1 - progress) / 0.4))


def save_state(path: Path, state: dict) -> None:
    """What a run that was killed goes on from, renamed into place."""
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.rename(path)


def versions() -> dict[str, str]:
    import transformers

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cpu": (names or [platform.machine()])[0],
    }


def published_state(model: nn.Module, head: Tensor, vocabulary: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """The tensors of a published checkpoint, those of the model as they are."""
    drafted = torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, vocabulary, True)
    own = {"lm_head.weight": head, "d2t": vocabulary - torch.arange(len(vocabulary)), "t2d": drafted}
    return {**model.state_dict(), **own}


def mean_of_last(log: list[list[float]], count: int) -> Tensor:
    """Mean of the last rows that are as wide as the last one."""
    return torch.tensor([row for row in log[-count:] if len(row) == len(log[-1])]).mean(0)


def write(folder: Path, model: nn.Module, material: Material, config: dict, recipe: dict) -> None:
    """Checkpoint, config and how it was trained."""
    state = {
        name: value.detach().to("cpu", torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in material.published(model).items()
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "training.json").write_text(json.dumps(recipe, indent=2) + "\n")
