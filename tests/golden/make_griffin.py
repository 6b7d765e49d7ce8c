"""Golden tensors from the drafter of hsj576/GRIFFIN (Apache-2.0), model/cnets_griffin_1.py, on a CPU.

    git clone https://github.com/hsj576/GRIFFIN /tmp/GRIFFIN && git -C /tmp/GRIFFIN checkout b27cfb96
    python tests/golden/make_griffin.py /tmp/GRIFFIN   # in a venv with torch, transformers 5

The steps are those of its own drafting with one candidate a step: step 1 runs the rows up to the anchor on target
features and keeps their keys and values; every further step runs one row on the second output of the step before, at
the next position. The head, random here, reads the first output.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import golden
import torch

sys.path.insert(0, str(Path(sys.argv[1]).resolve()))
from model.cnets_griffin_1 import Model

CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "theta-bias": {"rope_theta": 500000.0, "qkv_bias": True},
}


def config_json(switches: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": golden.HIDDEN,
        "intermediate_size": golden.INTERMEDIATE,
        "max_position_embeddings": 512,
        "num_attention_heads": golden.HEADS,
        "num_key_value_heads": golden.KV_HEADS,
        "num_hidden_layers": 1,
        "pad_token_id": 0,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "vocab_size": golden.VOCAB,
    } | switches


@torch.no_grad()
def unroll(
    model: Model, head: torch.Tensor, token_ids: torch.Tensor, features: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """logits and carry [anchor, step, ...] of the anchors that have STEPS tokens ahead."""
    logits, carries = [], []
    for anchor in range(golden.TOKENS - golden.STEPS):
        model.reset()
        rows = anchor + 1
        read, fed, cache = model(features[None, :rows], input_ids=token_ids[None, 1 : rows + 1], use_cache=True)
        reads, feds = [read[0, -1]], [fed[0, -1]]
        for step in range(1, golden.STEPS):
            read, fed, cache = model(
                feds[-1][None, None],
                input_ids=token_ids[None, rows + step : rows + step + 1],
                past_key_values=cache,
                position_ids=torch.tensor([rows + step - 1]),
                use_cache=True,
            )
            reads.append(read[0, -1])
            feds.append(fed[0, -1])
        logits.append(torch.stack(reads) @ head.T)
        carries.append(torch.stack(feds))
    return torch.stack(logits), torch.stack(carries)


def main() -> None:
    for seed, (name, switches) in enumerate(CASES.items(), start=60):
        config = config_json(switches)
        model = Model(SimpleNamespace(**config)).float().eval()
        # No norm stands before fc, attention or head: a smaller gain keeps what leaves a step near one.
        golden.randomise(model, seed, scale=0.7)
        head = torch.randn(golden.VOCAB, golden.HIDDEN, generator=torch.Generator().manual_seed(seed)) / 4
        head = head.bfloat16().float()
        token_ids, features = golden.inputs(golden.HIDDEN, 100 + seed)
        logits, carry = unroll(model, head, token_ids, features)
        golden.write(
            f"griffin-{name}",
            peer="hsj576/GRIFFIN b27cfb96, cnets_griffin_1",
            checkpoint=model.state_dict(),
            config=config,
            token_ids=token_ids,
            features=features,
            logits=logits,
            carry=carry,
            head=head,
        )


if __name__ == "__main__":
    main()
