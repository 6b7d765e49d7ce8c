"""One drafter with one number of speculative tokens, served by vLLM on the CPU: what it drafted, accepted and counted.

    python serve.py CHECKPOINT --target TARGET --prompts prompts.json -k 8 --tokens 104 -o served.json

Runs in vLLM's own environment and knows nothing of driftscope. prompts.json holds a list of {id, token_ids}.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    # One process, so that the scheduler can be watched from here.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens", "num_accepted_tokens_per_pos")
Rounds = dict[str, list[dict[str, list[int]]]]


def digest(checkpoint: str | Path) -> str:
    """SHA-256 of a checkpoint's files, so that what was served is never taken for another."""
    found = hashlib.sha256()
    for file in sorted(Path(checkpoint).iterdir()):
        if file.suffix in (".safetensors", ".bin", ".pt") or file.name == "config.json":
            found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


def watch_rounds() -> Rounds:
    """Per request, filled while vLLM serves: each round's draft, and what the target made of it.

    `emitted` are the accepted tokens and the target's own one, also past the end of the text. Read where vLLM counts.
    """
    from vllm.v1.core.sched.scheduler import Scheduler

    rounds: Rounds = defaultdict(list)
    update = Scheduler.update_from_output

    def watched(self: Any, scheduled: Any, output: Any) -> Any:
        for request, draft in scheduled.scheduled_spec_decode_tokens.items():
            emitted = output.sampled_token_ids[output.req_id_to_index[request]]
            rounds[request].append({"drafted": [int(i) for i in draft], "emitted": [int(i) for i in emitted]})
        return update(self, scheduled, output)

    Scheduler.update_from_output = watched
    return rounds


def counters(llm: Any) -> dict[str, Any]:
    """The counters of /metrics."""
    found: dict[str, Any] = {}
    for metric in llm.get_metrics():
        name = metric.name.removeprefix("vllm:spec_decode_")
        if name in COUNTERS:
            found[name] = list(metric.values) if name.endswith("per_pos") else metric.value
    return found


def serve(given: argparse.Namespace) -> dict[str, Any]:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from vllm import LLM, SamplingParams

    rounds = watch_rounds()
    prompts = json.loads(given.prompts.read_text("utf-8"))
    settings: dict[str, Any] = {
        "dtype": "float32",
        "enforce_eager": True,
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "max_num_seqs": len(prompts),
        "max_num_batched_tokens": 8192,
        "max_model_len": max(len(prompt["token_ids"]) for prompt in prompts) + given.tokens + 2 * given.k + 2,
    }
    speculative = {"method": given.method, "model": given.checkpoint, "num_speculative_tokens": given.k}
    llm = LLM(
        model=given.target,
        skip_tokenizer_init=True,
        speculative_config=speculative,
        disable_log_stats=False,
        per_request_spec_decode_metrics="detailed",
        seed=0,
        **settings,
    )
    # Greedy; without --stop on past an end-of-text token, so that all texts are of one length.
    stops = {"stop_token_ids": given.stop} if given.stop else {"ignore_eos": True}
    sampling = SamplingParams(temperature=0.0, max_tokens=given.tokens, detokenize=False, **stops)
    before = counters(llm)
    assert not before or not before["num_drafts"], f"vLLM counts before it serves: {before}"
    outputs = llm.generate([{"prompt_token_ids": prompt["token_ids"]} for prompt in prompts], sampling)
    served = []
    for prompt, output in zip(prompts, outputs, strict=True):
        only = output.outputs[0]
        # The engine's own name of a request starts with the one that it answers under.
        names = [name for name in rounds if name == output.request_id or name.startswith(f"{output.request_id}-")]
        assert len(names) == 1, f"request {output.request_id} is not one of {sorted(rounds)}"
        served.append(
            {
                "id": prompt["id"],
                "text": [int(i) for i in only.token_ids],
                "accepted_per_round": list(only.spec_decode_metrics.per_step_accepted),
                "rounds": rounds[names[0]],
            }
        )
    if given.metrics is not None:
        write_metrics(llm, given.metrics)
    return {
        "engine": f"vLLM {version('vllm-cpu')}, torch {version('torch')}",
        "speculative": {**speculative, "model": Path(given.checkpoint).name},
        "sha256": digest(given.checkpoint),
        "settings": settings,
        "aux_boundaries": aux_boundaries(llm),
        "counters": counters(llm),
        "served": served,
    }


def write_metrics(llm: Any, file: Path) -> None:
    """What an HTTP server would answer at /metrics; the periodic line of the log goes to the log."""
    from prometheus_client import REGISTRY, generate_latest

    llm.llm_engine.do_log_stats()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(generate_latest(REGISTRY))


def aux_boundaries(llm: Any) -> list[int] | None:
    """The layers whose states vLLM hands to the drafter, in its own numbering; None for a drafter of the last state."""
    found = llm.apply_model(lambda model: getattr(getattr(model, "model", None), "aux_hidden_state_layers", None))[0]
    return list(found) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--target", required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("-k", type=int, required=True, help="speculative tokens")
    parser.add_argument("--tokens", type=int, required=True, help="length of every text, without the prompt")
    parser.add_argument("--method", default="eagle3")
    parser.add_argument(
        "--stop", type=int, nargs="+", help="token ids that end a text; without them all are of one length"
    )
    parser.add_argument("--metrics", type=Path, help="write the text of /metrics there")
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    served = serve(given)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    partial = given.out.with_suffix(".partial")
    partial.write_text(json.dumps(served) + "\n", encoding="utf-8")
    os.replace(partial, given.out)


if __name__ == "__main__":
    main()
