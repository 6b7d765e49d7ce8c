"""For every test: the shapes in annotations are checked while the tests run, and numbers do not hang on the CPU."""

from collections.abc import Iterator
from pathlib import Path

import beartype  # noqa: F401 (nnsight adds attributes to every object, which beartype's import does not bear)
import pytest
from jaxtyping import install_import_hook

from tests.double import doubled, unpacked

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


pytest_plugins = ["pytester", "tests.kinds"]
# Before any of them is imported; programs that the tests start in processes of their own run without.
install_import_hook(shaped_modules(), "beartype.beartype")


@pytest.fixture(autouse=True)
def arithmetic(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the marker `numeric` asks for: float64, packed weights, or (by default) float32 without them."""
    marker = request.node.get_closest_marker("numeric")
    kind = marker.args[0] if marker and marker.args else "plain" if marker else "packed"
    if kind == "double":
        with doubled():
            yield
    elif kind == "plain":
        with unpacked():
            yield
    else:
        assert kind == "packed"
        yield
