"""Coded findings: DS1xx drift, DS2xx a checkpoint that is not run as trained, DS3xx notes on the data, DS4xx an engine."""

from driftscope.findings.evaluate import assess, evaluate, save
from driftscope.findings.model import Assessment, Definition, Evidence, Finding, NotMeasured, exit_code
from driftscope.findings.registry import definition, definitions
from driftscope.findings.thresholds import DEFAULTS, Thresholds, load

__all__ = [
    "DEFAULTS",
    "Assessment",
    "Definition",
    "Evidence",
    "Finding",
    "NotMeasured",
    "Thresholds",
    "assess",
    "definition",
    "definitions",
    "evaluate",
    "exit_code",
    "load",
    "save",
]
