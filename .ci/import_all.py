"""Import every module of an installed driftscope wheel and compare its files with the ones that should be in it."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"driftscope": "driftscope", "driftscope/app": "app", "driftscope/probes": "probes"}


def expected_files() -> set[str]:
    """What the source tree says should be in the wheel: all code, the prompts, schemas, templates, the marker for type checkers."""
    files = {"driftscope/py.typed"}
    for target, source in FOLDERS.items():
        files |= {f"{target}/{path.relative_to(ROOT / source).as_posix()}" for path in (ROOT / source).rglob("*.py")}
    for folder, ending in (("schemas", "json"), ("templates", "html")):
        files |= {f"driftscope/{folder}/{path.name}" for path in (ROOT / "driftscope" / folder).glob(f"*.{ending}")}
    prompts = ROOT / "probes"
    return files | {f"driftscope/probes/{path.relative_to(prompts).as_posix()}" for path in prompts.rglob("*.jsonl")}


def main(wheel: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        seen = {name for name in archive.namelist() if ".dist-info/" not in name}
    if seen != expected_files():
        sys.exit(f"wheel: missing {sorted(expected_files() - seen)}, unexpected {sorted(seen - expected_files())}")
    installed = Path(sysconfig.get_path("purelib")).resolve()
    modules = sorted(
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in seen if name[-3:] == ".py"
    )
    for name in modules:
        if name.endswith("__main__"):
            continue
        file = importlib.import_module(name).__file__
        if file is None or installed not in Path(file).resolve().parents:
            sys.exit(f"{name} was imported from {file}, not from the wheel in {installed}")

    from driftscope.target.prompts import load_prompts

    print(f"wheel: {len(modules)} modules imported, {len(load_prompts(None))} prompts shipped")


if __name__ == "__main__":
    main(sys.argv[1])
