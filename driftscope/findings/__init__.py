"""Coded findings: DS1xx drift, DS2xx a checkpoint that is not run as trained, DS3xx notes on the data, DS4xx an engine."""

from driftscope.findings import checkpoint_codes, engine_codes, rules  # noqa: F401 (they register what they declare)
from driftscope.findings.evaluate import assess, evaluate, save
from driftscope.findings.measured import Measured
from driftscope.findings.model import (
    Assessment,
    Coded,
    Definition,
    Evidence,
    Finding,
    NotMeasured,
    Threshold,
    exit_code,
)
from driftscope.findings.registry import definition, definitions, register, register_installed
from driftscope.findings.thresholds import DEFAULTS, Thresholds, load

__all__ = [
    "DEFAULTS",
    "Assessment",
    "Coded",
    "Definition",
    "Evidence",
    "Finding",
    "Measured",
    "NotMeasured",
    "Threshold",
    "Thresholds",
    "assess",
    "definition",
    "definitions",
    "evaluate",
    "exit_code",
    "load",
    "register",
    "save",
]

register_installed()
