"""What the trainers of the example drafters share: features, batches, updates, and the checkpoint that is written."""

from __future__ import annotations

import argparse
import json
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
    parser.add_argument("--features", type=Path, default=Path("build/smollm2/features.safetensors"))
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--steps", type=int, default=1100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--decay", type=float, default=0.8)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


@dataclass(frozen=True)
class Material:
    """Features of the conversations, and the parts of the target that a drafter is trained with."""

    data: dict[str, Tensor]
    target: PretrainedConfig
    head: Tensor
    """[draft vocabulary, H]"""
    embedding: Tensor

    @property
    def vocabulary(self) -> Tensor:
        """Target ids of the draft vocabulary, ascending."""
        return self.data["vocabulary"]

    def published(self, model: nn.Module) -> dict[str, Tensor]:
        """The tensors of a checkpoint of `model`."""
        return published_state(model, self.head, self.vocabulary, self.target.vocab_size)

    @property
    def conversations(self) -> int:
        return len(self.data["ids"])


def load_material(args: argparse.Namespace) -> Material:
    target = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.bfloat16)
    data = load_file(args.features)
    head = target.lm_head.weight.detach()[data["vocabulary"]].to(args.device)
    embedding = target.get_input_embeddings().weight.detach().to(args.device)
    return Material(data, target.config, head, embedding)


@dataclass(frozen=True)
class Batch:
    """Conversations, cut to the longest of them."""

    ids: Tensor
    sizes: Tensor
    features: Tensor
    top_ids: Tensor
    top_probabilities: Tensor


def batches(material: Material, count: int, size: int, seed: int, device: str) -> Iterator[Batch]:
    """`count` batches, a new order for every epoch."""
    order = torch.Generator().manual_seed(seed)
    queue: list[int] = []
    for _ in range(count):
        if len(queue) < size:
            queue += torch.randperm(material.conversations, generator=order).tolist()
        rows = torch.tensor([queue.pop(0) for _ in range(size)])
        sizes = material.data["sizes"][rows]
        width = int(sizes.max())
        ids, features, top_ids, top_probabilities = (
            material.data[name][rows, :width].to(device) for name in ("ids", "features", "top_ids", "top_probabilities")
        )
        yield Batch(ids.long(), sizes.to(device), features, top_ids.long(), top_probabilities)


def optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices, AdamW for the norms."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    return [
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(vectors, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def schedule(step: int, steps: int, warmup: int = 30) -> float:
    """Linear warm-up, constant, then linear to zero over the last 40%."""
    return min((step + 1) / warmup, 1.0, (steps - step) / (0.4 * steps))


def update(model: nn.Module, groups: list[torch.optim.Optimizer], loss: Tensor, lr: float) -> None:
    """One step along the gradient of `loss`."""
    for group in groups:
        for inner in group.param_groups:
            inner["lr"] = lr
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    for group in groups:
        group.step()
        group.zero_grad(set_to_none=True)


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
