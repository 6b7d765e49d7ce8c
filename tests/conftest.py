"""For every test: the shapes in annotations are checked while the tests run."""

from pathlib import Path

import beartype  # noqa: F401 (nnsight adds attributes to every object, which beartype's import does not bear)
from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]
PLACES = {"driftscope": ROOT / "driftscope", "driftscope.probes": ROOT / "probes", "driftscope.app": ROOT / "app"}


def shaped_modules() -> list[str]:
    """Names of the modules that write shapes with jaxtyping."""
    return [
        ".".join((package, *file.relative_to(folder).with_suffix("").parts))
        for package, folder in PLACES.items()
        for file in sorted(folder.rglob("*.py"))
        if "from jaxtyping import" in file.read_text(encoding="utf-8")
    ]


pytest_plugins = ["pytester"]
# Before any of them is imported; programs that the tests start in processes of their own run without.
install_import_hook(shaped_modules(), "beartype.beartype")
