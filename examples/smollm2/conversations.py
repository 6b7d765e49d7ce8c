"""Training text for the example drafters, written by the target itself.

Every conversation is the target's own: its user turn comes from a request template or is sampled from the target too, its
answers are sampled at a temperature drawn per conversation. Batches go through one static key/value cache, left-padded.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import topics
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, StaticCache

TOP_K = 40


@torch.inference_mode()
def sample(
    model: PreTrainedModel, prompts: list[list[int]], new_tokens: int, temperatures: list[float], stop: int
) -> list[list[int]]:
    """Continue every prompt by up to `new_tokens` tokens (top-k 40), ending at `stop`, which is not returned."""
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest), stop)
    mask = torch.zeros(len(prompts), longest + new_tokens, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = StaticCache(config=model.config, max_cache_len=longest + new_tokens)
    heat = torch.tensor(temperatures)[:, None]
    done = torch.zeros(len(prompts), dtype=torch.bool)
    written: list[torch.Tensor] = []
    step_ids, start = ids, 0
    for _ in range(new_tokens):
        end = start + step_ids.shape[1]
        out = model(
            input_ids=step_ids, attention_mask=mask[:, :end], position_ids=positions[:, start:end], cache=cache,
            use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        values, candidates = out.logits[:, -1].float().topk(TOP_K)
        choice = torch.multinomial(torch.softmax(values / heat, -1), 1)
        step_ids, start = candidates.gather(1, choice), end
        done |= step_ids[:, 0] == stop
        written.append(torch.where(done, stop, step_ids[:, 0]))
        if done.all():
            break
    rows = torch.stack(written, 1).tolist()
    return [row[: row.index(stop)] if stop in row else row for row in rows]


def chat(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]]) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def batches(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rng: random.Random, size: int, answer: int
) -> Iterator[list[dict]]:
    """Yield batches of conversations: {"tokens": all ids, "prompt_length": tokens before the last answer}."""
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")

    def opened(system: str | None, user: str) -> list[dict[str, str]]:
        head = [] if system is None else [{"role": "system", "content": system}]
        return [*head, {"role": "user", "content": user}]

    while True:
        systems = [rng.choice(topics.SYSTEM_PROMPTS) for _ in range(size)]
        heats = [rng.uniform(0.2, 0.8) for _ in range(size)]
        own = size // 3
        openings = [chat(tokenizer, opened(system, "")) for system in systems[:own]]
        # Up to where the empty user turn would end: the target writes the turn itself.
        openings = [ids[: len(ids) - ids[::-1].index(stop) - 1] for ids in openings]
        users = tokenizer.batch_decode(sample(model, openings, 40, [1.0] * own, stop))
        users += [rng.choice(topics.REQUESTS).format(rng.choice(topics.SUBJECTS)) for _ in range(size - own)]
        chats = [opened(system, user) for system, user in zip(systems, users, strict=True)]
        # A quarter continue into a second turn.
        second = range(size - size // 4, size)
        first_answers = sample(model, [chat(tokenizer, chats[i]) for i in second], 60, [heats[i] for i in second], stop)
        for i, reply in zip(second, first_answers, strict=True):
            chats[i] += [
                {"role": "assistant", "content": tokenizer.decode(reply)},
                {"role": "user", "content": rng.choice(topics.FOLLOW_UPS)},
            ]
        prompts = [chat(tokenizer, messages) for messages in chats]
        answers = sample(model, prompts, answer, heats, stop)
        yield [
            {"tokens": prompt + reply + [stop], "prompt_length": len(prompt)}
            for prompt, reply in zip(prompts, answers, strict=True)
            if reply
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--out", type=Path, default=Path("build/smollm2/conversations.jsonl"))
    parser.add_argument("--tokens", type=int, default=800_000, help="stop after this many tokens")
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--answer", type=int, default=180, help="tokens of the last answer at most")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    model = AutoModelForCausalLM.from_pretrained(args.target, dtype=torch.bfloat16).eval()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    total, began = 0, time.monotonic()
    with args.out.open("w") as file:
        for batch in batches(model, tokenizer, random.Random(args.seed), args.batch, args.answer):
            for row in batch:
                file.write(json.dumps(row) + "\n")
                total += len(row["tokens"])
            file.flush()
            print(f"{total} tokens, {total / (time.monotonic() - began):.0f}/s", flush=True)
            if total >= args.tokens:
                break


if __name__ == "__main__":
    main()
