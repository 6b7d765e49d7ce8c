"""Golden draft trees from SafeAILab/EAGLE (Apache-2.0): `topK_genrate` of eagle/model/cnets1.py (EAGLE-2) on a CPU.

    git clone https://github.com/SafeAILab/EAGLE /tmp/EAGLE && git -C /tmp/EAGLE checkout cb7e0841
    python tests/golden/make_trees.py /tmp/EAGLE   # in a venv with torch, transformers 5, huggingface_hub

Weights and inputs are those of the golden file eagle1-no-bias. The peer is asked for the tree of one anchor at a time; it expands
once more than its `depth` says. Kept of each: the tokens, in the order that it verifies them, and which of them is the parent.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import golden
import torch
from make_eagle1 import CASES, Model, config_json
from safetensors.torch import save_file

NAME = "no-bias"
DEPTH, TOP_K, NODES = 2, 3, 10
"""Levels of the tree less one, children of a node, nodes without the root."""


@torch.no_grad()
def tree(
    model: Model, head: torch.Tensor, token_ids: torch.Tensor, features: torch.Tensor, anchor: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [NODES] and parents [NODES] (-1: the root) of the tree behind token `anchor + 1`."""
    model.reset_kv()
    rows = anchor + 1
    tokens, _, mask, _ = model.topK_genrate(
        features[None, :rows], token_ids[None, : rows + 1], lambda hidden: hidden @ head.T, None
    )
    seen = mask[0, 0].bool()
    # A node sees its ancestors and itself: the nearest ancestor is the one that sees the most.
    depth = seen.sum(1)
    parents = [max((p for p in range(NODES + 1) if seen[n, p] and p != n), key=lambda p: int(depth[p])) - 1
               for n in range(1, NODES + 1)]  # fmt: skip
    return tokens[0, 1:], torch.tensor(parents)


def main() -> None:
    seed = 80 + list(CASES).index(NAME)
    config = SimpleNamespace(**config_json(CASES[NAME]))
    model = Model(config, bias=False, total_tokens=NODES + 1, depth=DEPTH, top_k=TOP_K).float().eval()
    golden.randomise(model, seed, scale=0.8)
    model.init_tree()
    head = torch.randn(golden.VOCAB, golden.HIDDEN, generator=torch.Generator().manual_seed(seed)) / 4
    head = head.bfloat16().float()
    token_ids, features = golden.inputs(golden.HIDDEN, 100 + seed)
    made = [tree(model, head, token_ids, features, anchor) for anchor in range(golden.TOKENS - golden.STEPS)]
    tokens, parents = (torch.stack(part) for part in zip(*made, strict=True))
    about = {"peer": "SafeAILab/EAGLE cb7e0841, cnets1.topK_genrate", "checkpoint": f"eagle1-{NAME}"}
    shape = {"steps": str(DEPTH + 1), "topk": str(TOP_K), "nodes": str(NODES)}
    file = Path(__file__).parent / "trees" / f"eagle2-{NAME}.safetensors"
    file.parent.mkdir(exist_ok=True)
    save_file({"tokens": tokens, "parents": parents}, file, metadata=about | shape)


if __name__ == "__main__":
    main()
