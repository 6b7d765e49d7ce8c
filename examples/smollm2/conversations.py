"""Training text for the example drafters, written by the target itself, with the states that the drafters learn from.

The user turns are of many kinds (`turns.py`), a part of them the target's own; answers are sampled at a temperature drawn
per conversation. Slots are refilled as soon as an answer ends, and boundary and final states are kept while sampling, so
that no second pass is needed. Shards are renamed into place: a run that was killed goes on after its last one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
import turns
from decoder import Decoder
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

BOUNDARIES = (2, 15, 27)
TOP_K = 40
LONGEST_PROMPT = 200


@dataclass
class Task:
    """A text that the target goes on with, and what comes after it."""

    ids: list[int]
    budget: int
    """Tokens to sample at most."""
    heat: float
    turns: list[str]
    """User turns that follow the answer."""
    own_turn: bool = False
    """The target writes the user turn, not an answer."""
    written: list[int] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Conversation:
    ids: list[int]
    prompt_length: int
    """Tokens before the last answer."""
    states: Tensor
    """[token except the last, boundary and final, H], bfloat16."""


class Writer:
    """Conversations without end, from as many slots as the decoder has."""

    def __init__(
        self, decoder: Decoder, tokenizer: PreTrainedTokenizerBase, rng: random.Random, answer: int, slots: int
    ) -> None:
        self.decoder, self.tokenizer, self.rng, self.answer, self.slots = decoder, tokenizer, rng, answer, slots
        self.stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.held_out = turns.held_out()
        self.waiting: list[Task] = []

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def opened(self, system: str | None, user: str) -> list[int]:
        head = [] if system is None else [{"role": "system", "content": system}]
        messages = [*head, {"role": "user", "content": user}]
        return self.encode(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def fresh(self) -> Task:
        """The next task: one that follows another, or a new conversation."""
        while not self.waiting:
            _, system, users = turns.conversation(self.rng)
            heat = self.rng.uniform(0.2, 0.8)
            if not users:
                ids = self.opened(system, "")
                # Up to where the empty user turn would end.
                ids = ids[: len(ids) - ids[::-1].index(self.stop) - 1]
                return Task(ids, 40, 1.0, [], own_turn=True)
            self.queue(self.opened(system, users[0]), heat, users[1:], self.held_out & turns.eights(" ".join(users)))
        return self.waiting.pop()

    def queue(self, ids: list[int], heat: float, later: list[str], clash: object = ()) -> None:
        if len(ids) <= LONGEST_PROMPT and not clash:
            self.waiting.append(Task(ids, 60 if later else self.answer, heat, later))

    def ended(self, task: Task, stopped: bool) -> Conversation | None:
        """What a task leaves: a conversation, or the task that goes on with it. An answer that was cut off gets no end."""
        text = [*task.ids, *task.written]
        if task.own_turn:
            tail = self.encode("<|im_end|>\n<|im_start|>assistant\n")
            clash = self.held_out & turns.eights(self.tokenizer.decode(task.written))
            self.queue(text + tail, self.rng.uniform(0.2, 0.8), [], clash or not task.written)
        elif task.turns:
            user = f"<|im_end|>\n<|im_start|>user\n{task.turns[0]}<|im_end|>\n<|im_start|>assistant\n"
            self.queue(text + self.encode(user), task.heat, task.turns[1:])
        elif len(task.written) >= 4:
            ids = [*text, self.stop] if stopped else text
            return Conversation(ids, len(task.ids), torch.cat(task.states)[: len(ids) - 1])
        return None

    def __iter__(self) -> Iterator[Conversation]:
        running: dict[int, Task] = {}
        while True:
            free = [slot for slot in range(self.slots) if slot not in running]
            if len(free) >= min(8, self.slots):
                tasks = [self.fresh() for _ in free]
                for start in range(0, len(free), 8):
                    part = slice(start, start + 8)
                    for task, states in zip(
                        tasks[part], self.decoder.prefill(free[part], [task.ids for task in tasks[part]]), strict=True
                    ):
                        task.states.append(states.bfloat16())
                        self.choose(task, states[-1:, -1])
                running |= dict(zip(free, tasks, strict=True))
            last = [running[slot].written[-1] if slot in running else self.stop for slot in range(self.slots)]
            states = self.decoder.step(torch.tensor(last))
            heat = torch.tensor([running[slot].heat if slot in running else 1.0 for slot in range(self.slots)])
            choices, kept = self.sample(states[:, -1], heat[:, None]), states.bfloat16()
            for row, task in sorted(running.items()):
                task.states.append(kept[row : row + 1])
                stopped = choices[row] == self.stop
                if stopped or len(task.written) >= task.budget:
                    done = self.ended(running.pop(row), stopped)
                    if done:
                        yield done
                else:
                    task.written.append(choices[row])

    def sample(self, final: Tensor, heat: Tensor) -> list[int]:
        values, candidates = (final @ self.decoder.head.T).topk(TOP_K)
        return candidates.gather(1, torch.multinomial(torch.softmax(values / heat, -1), 1))[:, 0].tolist()

    def choose(self, task: Task, final: Tensor) -> None:
        """The first token of an answer; one that ends it at once is written all the same."""
        task.written = self.sample(final, torch.tensor([[task.heat]]))


def save_shard(path: Path, conversations: list[Conversation]) -> None:
    tensors = {
        "ids": torch.tensor([token for one in conversations for token in one.ids], dtype=torch.int32),
        "sizes": torch.tensor([len(one.ids) for one in conversations], dtype=torch.int32),
        "prompt_lengths": torch.tensor([one.prompt_length for one in conversations], dtype=torch.int32),
        "states": torch.cat([one.states for one in conversations]),
    }
    part = path.with_suffix(".part")
    save_file(tensors, part)
    part.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=Path("build/target"))
    parser.add_argument("--out", type=Path, default=Path("build/smollm2/text"), help="folder of the shards")
    parser.add_argument("--tokens", type=int, default=1_500_000, help="stop after this many tokens")
    parser.add_argument("--shard", type=int, default=20_000, help="tokens of a shard")
    parser.add_argument("--slots", type=int, default=128)
    parser.add_argument("--answer", type=int, default=170, help="tokens of the last answer at most")
    parser.add_argument(
        "--seed", type=int, default=0, help="another one for each process that writes to a folder of its own"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    shards = sorted(args.out.glob("*.safetensors"))
    total = args.shard * len(shards)
    if total >= args.tokens:
        return
    # A run that goes on draws other conversations than those it has.
    seed = 10_007 * args.seed + len(shards)
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(args.target)
    decoder = Decoder(args.target, args.slots, LONGEST_PROMPT + args.answer + 2, BOUNDARIES)
    kept: list[Conversation] = []
    size, new, began, cpu = 0, 0, time.monotonic(), time.process_time()
    for one in Writer(decoder, tokenizer, random.Random(seed), args.answer, args.slots):
        kept.append(one)
        size += len(one.ids)
        if size >= args.shard:
            save_shard(args.out / f"{len(shards):04d}.safetensors", kept)
            shards.append(args.out)
            total, new = total + size, new + size
            rates = f"{new / (time.monotonic() - began):.0f}/s, {new / (time.process_time() - cpu):.0f} a CPU second"
            print(f"{len(shards)} shards, {total} tokens, {rates}", flush=True)
            kept, size = [], 0
        if total >= args.tokens:
            break


if __name__ == "__main__":
    main()
