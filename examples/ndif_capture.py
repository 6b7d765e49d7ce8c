"""Hidden states of a target that NDIF serves, written as vLLM writes them, for `driftscope capture --from`.

    NDIF_API_KEY=... python examples/ndif_capture.py texts.jsonl states --target meta-llama/Llama-3.1-70B-Instruct
    driftscope capture --from states --layers 2,40,77,80 --target meta-llama/Llama-3.1-70B-Instruct --prompts asked.jsonl -o l70

`texts.jsonl` holds a text a line as {"id": ..., "token_ids": [...]}: a prompt with the answer that the target gave to it.
Nothing of the target but its config and tokenizer is loaded here: layers and norm are named in a trace that the server
runs. `--remote local` runs the same trace here on weights that are loaded, after the round trip that a request makes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nnsight
import torch
from safetensors.torch import save_file


def states(model: Any, token_ids: Sequence[int], boundaries: Sequence[int], remote: bool | str) -> torch.Tensor:
    """[T, boundary, H] of one text: the streams before these layers, n being the one before the final norm.

    The trace uses nothing of this file but numbers, since the server has no copy of it.
    """
    ids = torch.tensor([list(token_ids)])
    layers, count = [b for b in boundaries], len(model.model.layers)
    with torch.no_grad(), model.trace(input_ids=ids, use_cache=False, remote=remote):
        kept = nnsight.save([])
        for b in layers:
            # A copy: a model may go on adding to its stream in place.
            kept.append((model.model.layers[b].input if b < count else model.model.norm.input).clone())
    return torch.stack([state[0].cpu() for state in kept], 1)


def default_boundaries(layers: int) -> tuple[int, ...]:
    """What an EAGLE-3 drafter reads by default, and the state before the final norm."""
    return (2, layers // 2, layers - 3, layers)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--layers", help="boundaries, ascending; default 2, n//2, n-3 and n")
    parser.add_argument("--remote", choices=("ndif", "local"), default="ndif")
    given = parser.parse_args(arguments)
    tokenizer = nnsight_tokenizer(given.target)
    model = nnsight.TransformersModel(given.target, task="text-generation", tokenizer=tokenizer)
    count = model.config.get_text_config().num_hidden_layers
    boundaries = tuple(map(int, given.layers.split(","))) if given.layers else default_boundaries(count)
    given.out.mkdir(parents=True, exist_ok=True)
    for line in given.texts.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)
        remote = True if given.remote == "ndif" else "local"
        held = {
            "hidden_states": states(model, text["token_ids"], boundaries, remote),
            "token_ids": torch.tensor(text["token_ids"]),
        }
        save_file(held, given.out / f"{text['id']}.safetensors")
        print(f"{text['id']}: {len(text['token_ids'])} tokens, boundaries {', '.join(map(str, boundaries))}")


def nnsight_tokenizer(target: str) -> Any:
    """Given to the model, as a folder's own is not found by its pipeline."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(target)


if __name__ == "__main__":
    main()
