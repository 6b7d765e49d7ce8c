"""Keep of every served case what `driftscope engine` reads: the lines about speculative decoding, requests and tokens.

    python benchmarks/engine_cases/keep.py [-o build/benchmarks/engine_cases] [--to benchmarks/engine_cases/counters]

An answer of /metrics has some hundred lines; all others are about time and memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

KEPT = ("vllm:spec_decode_", "vllm:generation_tokens", "vllm:prompt_tokens_total", "vllm:request_success")


def kept(text: str) -> str:
    """The lines in question, with their HELP and TYPE."""
    lines = [line for line in text.splitlines() if any(name in line.split("{")[0] for name in KEPT)]
    return "\n".join(line for line in lines if "_created" not in line.split("{")[0]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/engine_cases"))
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "counters")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    for file in sorted((given.out / "served").glob("*.txt")):
        (given.to / file.name).write_text(kept(file.read_text("utf-8")), encoding="utf-8")
        print(given.to / file.name)


if __name__ == "__main__":
    main()
