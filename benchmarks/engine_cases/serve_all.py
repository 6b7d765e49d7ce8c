"""Serve every case of cases.json with vLLM, one after another, and keep what its /metrics says.

    python benchmarks/engine_cases/serve_all.py --vllm-python build/vllm/bin/python [-o build/benchmarks/engine_cases]

Cases that were served already are left alone. Needs nothing of driftscope.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

SERVE = Path(__file__).resolve().parents[1] / "vllm_parity" / "serve.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", required=True)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/benchmarks/engine_cases"))
    parser.add_argument("-k", type=int, default=4, help="speculative tokens")
    parser.add_argument("--tokens", type=int, default=64, help="longest text")
    parser.add_argument("--stop", type=int, nargs="+", default=[2], help="token ids that end a text")
    given = parser.parse_args()
    for case in json.loads((given.out / "cases.json").read_text("utf-8")):
        metrics = given.out / "served" / f"{case['name']}.txt"
        if metrics.is_file():
            continue
        print(f"serving {case['name']}", flush=True)
        words = [given.vllm_python, SERVE, case["checkpoint"], "--target", case["target"]]
        words += ["--prompts", given.out / f"{case['prompts']}.json", "-k", given.k, "--tokens", given.tokens]
        words += ["--stop", *given.stop, "--metrics", metrics, "-o", metrics.with_suffix(".json")]
        metrics.parent.mkdir(parents=True, exist_ok=True)
        with metrics.with_suffix(".log").open("w") as log:
            code = subprocess.run([str(word) for word in words], stdout=log, stderr=log, check=False).returncode
        if code:
            print(f"  ended with code {code}: see {metrics.with_suffix('.log')}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
