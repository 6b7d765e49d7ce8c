"""Files that lie: sound checkpoints, captures, dumps and runs, each spoilt by chance or by design, for benchmarks/fuzz.py."""

from hostile import captures, checkpoints, dump_files, dumps, folders, pickles, prompts, runs
from hostile.registry import MAKERS, MARK
from hostile.stock import KEY, PLANTED, Stock

__all__ = [
    "KEY",
    "MAKERS",
    "MARK",
    "PLANTED",
    "Stock",
    "captures",
    "checkpoints",
    "dump_files",
    "dumps",
    "folders",
    "pickles",
    "prompts",
    "runs",
]
