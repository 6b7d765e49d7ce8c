"""What the drafters learn from: boundary states and the target's top-32 distribution over the draft vocabulary.

The states were kept while the text was sampled (`conversations.py`); here the draft vocabulary is chosen, once, and the
final state of every position becomes the distribution. One file a shard, renamed into place, so that a training step never
runs the target and a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from conversations import BOUNDARIES
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

DRAFT_VOCAB = 8192
TOP = 32


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.safetensors"))


def draft_vocabulary(shards: list[Path], vocab_size: int, size: int = DRAFT_VOCAB) -> Tensor:
    """The `size` most frequent token ids of the text, ascending; the lowest ids break ties."""
    counts = torch.zeros(vocab_size, dtype=torch.long)
    for shard in shards:
        with safe_open(shard, "pt") as file:
            counts += torch.bincount(file.get_tensor("ids").long(), minlength=vocab_size)
    order = torch.argsort(counts, descending=True, stable=True)[:size]
    print(f"draft vocabulary: {size} tokens cover {counts[order].sum() / counts.sum():.2%} of the text", flush=True)
    return order.sort().values


@torch.inference_mode()
def features(shard: Path, head: Tensor) -> dict[str, Tensor]:
    """Of every token: features [3, H], ids and probabilities of the 32 likeliest draft tokens. A last token has zeros."""
    data = load_file(shard)
    sizes = data["sizes"].long()
    rows = torch.ones(int(sizes.sum()), dtype=torch.bool)
    rows[sizes.cumsum(0) - 1] = False
    states = data.pop("states")
    kept = torch.zeros(len(rows), len(BOUNDARIES), states.shape[-1], dtype=torch.bfloat16)
    kept[rows] = states[:, :-1]
    top_ids = torch.zeros(len(rows), TOP, dtype=torch.int16)
    top_probabilities = torch.zeros(len(rows), TOP, dtype=torch.bfloat16)
    parts = [(final.to(head.dtype) @ head.T).topk(TOP) for final in states[:, -1].split(512)]
    top_ids[rows] = torch.cat([part.indices for part in parts]).short()
    top_probabilities[rows] = torch.cat([part.values.float().softmax(-1) for part in parts]).bfloat16()
    return {**data, "features": kept, "top_ids": top_ids, "top_probabilities": top_probabilities}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--text", type=Path, nargs="+", default=[Path("build/smollm2/text")], help="folders of shards")
    parser.add_argument("--out", type=Path, default=Path("build/smollm2/features"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.float32)
    shards = [shard for folder in args.text for shard in shards_of(folder)]
    chosen = args.out / "vocabulary.safetensors"
    if not chosen.exists():
        save_file({"vocabulary": draft_vocabulary(shards, model.config.vocab_size)}, chosen)
    head = model.lm_head.weight.detach()[load_file(chosen)["vocabulary"]]
    began = time.monotonic()
    for number, shard in enumerate(shards):
        path = args.out / f"{number:04d}.safetensors"
        if path.exists():
            continue
        part = path.with_suffix(".part")
        save_file(features(shard, head), part)
        part.rename(path)
        print(f"{number + 1}/{len(shards)} shards, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
