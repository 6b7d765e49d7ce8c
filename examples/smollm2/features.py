"""What the drafters learn from, computed once: boundary states and the target's top-32 distribution per position.

Rows are conversations cut or padded to one length. Features and probabilities lie in one safetensors file that training
maps into memory, so that a training step never runs the target.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

BOUNDARIES = (2, 15, 27)
DRAFT_VOCAB = 4096
TOP = 32


def read_conversations(path: Path) -> list[list[int]]:
    return [json.loads(line)["tokens"] for line in path.read_text().splitlines()]


def draft_vocabulary(conversations: list[list[int]], vocab_size: int, size: int = DRAFT_VOCAB) -> torch.Tensor:
    """The `size` most frequent token ids, ascending; the lowest ids break ties."""
    flat = torch.tensor([token for tokens in conversations for token in tokens])
    counts = torch.bincount(flat, minlength=vocab_size)
    order = torch.argsort(counts, descending=True, stable=True)[:size]
    print(f"draft vocabulary: {size} tokens cover {counts[order].sum() / counts.sum():.2%} of the text", flush=True)
    return order.sort().values


def pad(conversations: list[list[int]], length: int, filler: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [conversation, length] and the number of real tokens in each row."""
    ids = torch.full((len(conversations), length), filler, dtype=torch.int32)
    sizes = torch.zeros(len(conversations), dtype=torch.int32)
    for row, tokens in enumerate(conversations):
        cut = tokens[:length]
        ids[row, : len(cut)] = torch.tensor(cut, dtype=torch.int32)
        sizes[row] = len(cut)
    return ids, sizes


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--conversations", type=Path, default=Path("build/smollm2/conversations.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("build/smollm2/features.safetensors"))
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.bfloat16).eval()
    conversations = read_conversations(args.conversations)
    vocabulary = draft_vocabulary(conversations, model.config.vocab_size)
    ids, sizes = pad(conversations, args.length, model.config.eos_token_id)
    rows, width = ids.shape
    features = torch.empty(rows, width, len(BOUNDARIES), model.config.hidden_size, dtype=torch.bfloat16)
    top_ids = torch.empty(rows, width, TOP, dtype=torch.int16)
    top_probabilities = torch.empty(rows, width, TOP, dtype=torch.bfloat16)
    began = time.monotonic()
    for start in range(0, rows, args.batch):
        part = slice(start, start + args.batch)
        # Padding stands at the end, so causal attention keeps it out of every real position.
        out = model.model(input_ids=ids[part].long(), output_hidden_states=True, use_cache=False)
        features[part] = torch.stack([out.hidden_states[b] for b in BOUNDARIES], 2)
        logits = (out.last_hidden_state @ model.lm_head.weight[vocabulary].T).float()
        values, places = logits.topk(TOP)
        top_ids[part], top_probabilities[part] = places.short(), values.softmax(-1).bfloat16()
        if start % (args.batch * 20) == 0:
            print(f"{start}/{rows} conversations, {time.monotonic() - began:.0f} s", flush=True)
    tensors = {
        "ids": ids, "sizes": sizes, "features": features, "top_ids": top_ids, "top_probabilities": top_probabilities,
        "vocabulary": vocabulary,
    }  # fmt: skip
    save_file(tensors, args.out)


if __name__ == "__main__":
    main()
