"""Make the planted pair: a tiny target that has learnt a made-up language, and two drafters that really draft for it.

Run from the root of the repository: python -m tests.audit.make_pair. Takes some minutes on one core; the tests read what it
wrote. The language: the next token follows from the last one and from the remainder by 3 of the token three before it, so
that a drafter needs its features, its rows and the right positions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from tests.audit.pair import DRAFTERS, FILE, VOCAB, draft_vocabulary, drafter_config, language, target_model

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "smollm2"))
LENGTH = 48
TOP = 16


def sample(first: Tensor, second: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Texts of the language, Long[count, LENGTH]: the first continuation in 3 of 4 cases, else the second."""
    texts = torch.randint(0, VOCAB, (count, LENGTH), generator=generator)
    for i in range(4, LENGTH):
        last, before = texts[:, i - 1], texts[:, i - 4] % 3
        likely = torch.rand(count, generator=generator) < 0.75
        texts[:, i] = torch.where(likely, first[last, before], second[last, before])
    return texts


def train_target(steps: int = 1100) -> torch.nn.Module:
    model, generator = target_model(), torch.Generator().manual_seed(0)
    first, second = language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50, (steps - step) / (0.4 * steps))
        texts = sample(first, second, 40, generator)
        logits = model(input_ids=texts[:, :-1]).logits
        loss = F.cross_entropy(logits[:, 3:].flatten(0, 1), texts[:, 4:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 250 == 249:
            hit = (logits[:, 3:].argmax(-1) == first[texts[:, 3:-1], texts[:, :-4] % 3]).float().mean()
            print(f"target {step + 1} loss {loss.item():.3f} greedy {hit:.3f}", flush=True)
    return model.eval().requires_grad_(False)


def train_drafter(model: torch.nn.Module, variant: str, steps: int = 800) -> dict[str, Tensor]:
    from ttt import TTTDrafter

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    first, second = language()
    config, vocabulary = drafter_config(variant), draft_vocabulary()
    unroll = 1 if variant == "one-step" else 5
    drafter = TTTDrafter(config, model.get_input_embeddings().weight.detach(), model.lm_head.weight[vocabulary])
    with torch.no_grad():
        for name, weight in drafter.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, weight.shape[1] ** -0.5)
            else:
                # Norms of a trained drafter are not ones.
                weight.copy_(1 + 0.3 * torch.randn(weight.shape, generator=generator) * ("norm" in name))
    optimizer = torch.optim.AdamW(drafter.parameters(), lr=4e-3, weight_decay=0.01)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 50, (steps - step) / (0.5 * steps))
        texts = sample(first, second, 24, generator)
        with torch.no_grad():
            out = model(input_ids=texts, output_hidden_states=True)
            features = torch.stack([out.hidden_states[b] for b in config["boundaries"]], 2)
            values, places = out.logits[..., vocabulary].topk(TOP)
        sizes = torch.full((len(texts),), LENGTH)
        loss, agreement = drafter.losses(texts, sizes, features, places, values.softmax(-1), unroll, 0.9)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 250 == 249:
            print(
                f"{variant} {step + 1} loss {loss.item():.3f} top-1 {[f'{a:.2f}' for a in agreement.tolist()]}",
                flush=True,
            )
    return {f"{variant}.{name}": value.detach() for name, value in drafter.state_dict().items()}


def main() -> None:
    """What the file holds already stays."""
    tensors = load_file(FILE) if FILE.exists() else {}
    model = target_model().eval().requires_grad_(False)
    if "target.lm_head.weight" in tensors:
        held = {name.removeprefix("target."): value for name, value in tensors.items() if name.startswith("target.")}
        model.load_state_dict(held)
    else:
        model = train_target()
        tensors |= {f"target.{name}": value for name, value in model.state_dict().items()}
    for variant in DRAFTERS:
        if f"{variant}.fc.weight" not in tensors:
            tensors |= train_drafter(model, variant)
    save_file({name: value.bfloat16().contiguous() for name, value in tensors.items()}, FILE)
    print(f"{FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
