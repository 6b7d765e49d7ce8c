"""The shipped JSON Schema of a summary, its probes from their records: `python -m tests.summary_schema` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path

from driftscope.probes import SHIPPED, available
from driftscope.probes.schema import with_probes

FILE = Path(__file__).resolve().parents[1] / "driftscope" / "schemas" / "summary.schema.json"


def made_anew() -> str:
    """What the file should hold."""
    shipped = {name: probe for name, probe in available().items() if name in SHIPPED}
    return json.dumps(with_probes(json.loads(FILE.read_text(encoding="utf-8")), shipped), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(made_anew(), encoding="utf-8")
