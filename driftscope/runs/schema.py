"""The tables and `run.json` of a run: names, types and meaning of everything that is stored.

RMS is stored, in float32; L2 = RMS * sqrt(hidden_size), with `hidden_size` in `run.json`. Sums are float64. Steps count
from 1, boundary b is the residual stream after b target layers. A null is "not measured", never 0.
"""

from __future__ import annotations

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from driftscope.errors import RunError
from driftscope.files.fields import Audit, Count, Finding, Origin, Provenance, Settings, Size, Switches, Trust
from driftscope.runs.columns import (
    BOOL,
    FEED,
    FLOAT,
    INT16,
    INT32,
    INT64,
    PROMPT,
    STEP,
    STRING,
    SUM,
    VARIANT,
    Column,
    Table,
    optional,
)
from driftscope.views import VIEWS

SCHEMA_VERSION = 1

DISJOINT_BUCKETS = ("sink", "prompt", "committed", "drafted", "current", "virtual")
"""Parts of the keys of a query; their masses sum to 1."""
BUCKETS = (*DISJOINT_BUCKETS, "self_generated")
"""`self_generated` is drafted + current from step 2 on, and 0 at step 1; in a block of masks it is there from step 1 on."""


def _verified(name: str, kind: pa.DataType, about: str = "") -> Column:
    """Null in a run over captures that do not confirm their text as the target's: nothing tells what is accepted."""
    return Column(name, kind, about, nullable=True, whole=True)


_REGION = Column("region", STRING, values=("sink", "prompt", "continuation"))

ANCHORS = Table(
    "anchors",
    (
        VARIANT,
        FEED,
        PROMPT,
        Column("anchor", INT32, "position t at which the chain starts", least=0),
        STEP,
        Column("loop", BOOL, "the anchor lies in a repetition loop of the target: not in default figures"),
        Column("near_tie", BOOL, "the horizon holds a position where the recording argmax differs from the text"),
        Column("drafted", INT32, "drafted token, target-vocabulary id"),
        Column("text", INT32, "the target's token at that position"),
        _verified("match", BOOL, "drafted == text at this step"),
        _verified("accepted", BOOL, "joint: match at this and all earlier steps"),
        optional("rank", INT32, "of the text token among the draft logits, 1 = top; null outside their vocabulary"),
        optional("prob", FLOAT, "drafter's probability of the text token; null as rank is"),
        optional("top_prob", FLOAT, "drafter's highest probability"),
        optional("sampling", FLOAT, "sum over v of min(p(v), q(v)), target and drafter; temperature in the variant"),
        optional("logit_entropy", FLOAT, "of the drafter's distribution, nats"),
        optional("entropy", FLOAT, "of the attention, nats, mean over layers and heads"),
        optional("rms/{site}", FLOAT, "RMS at a site (q, k, v: mean over heads)"),
        optional("cos_prev", FLOAT, "cosine of carry_k and carry_{k-1}; null at step 1"),
        optional("cos_baseline", FLOAT, "cosine of carry_k(t) and the baseline's carry_1(t+k-1)"),
        optional("matched_growth", FLOAT, "RMS carry_k(t) / RMS carry_1(t+k-1)"),
        optional("update_ratio/{name}", FLOAT, "RMS of an update / RMS of the residual that it is added to"),
        optional("mass/{bucket}", FLOAT, "attention mass, mean over layers and heads", BUCKETS),
        optional("keys/{bucket}", INT32, "number of keys", BUCKETS),
        optional("excess/{bucket}", FLOAT, "mass minus the position-matched baseline's", BUCKETS),
    ),
)
HEADS = Table(
    "heads",
    (
        VARIANT,
        FEED,
        PROMPT,
        STEP,
        Column("layer", INT16, least=0),
        Column("head", INT16, least=0),
        Column("anchors", INT32, "anchors outside loops: the denominator of the sums", least=0),
        optional("mass/{bucket}", SUM, "sum over those anchors", BUCKETS),
        optional("excess/{bucket}", SUM, "sum over those anchors", BUCKETS),
        optional("entropy", SUM, "sum over those anchors, nats"),
    ),
)
STEPS = Table(
    "steps",
    (
        VARIANT,
        FEED,
        PROMPT,
        STEP,
        Column("anchors", INT32, "anchors outside loops", least=0),
        _verified("matches", INT32),
        _verified("reached", INT32, "anchors whose earlier steps were all accepted"),
        _verified("accepted", INT32, "joint"),
        optional("sum/{quantity}", SUM, "sum over anchors outside loops"),
        optional("served_rounds", INT32, "rounds of the served walk at K = step, loops kept"),
        optional("served_accepted", INT64, "accepted tokens of that walk, without bonus tokens"),
        optional("served_accepted_sq", INT64, "sum over rounds of the squared accepted count"),
    ),
)
LAYERS = Table(
    "layers",
    (
        PROMPT,
        Column("boundary", INT16, least=0),
        _REGION,
        Column("positions", INT32, "denominator of the sums", least=0),
        optional("sum_rms", SUM),
        optional("sum_log_rms", SUM),
    ),
)
AUX = Table(
    "aux",
    (
        PROMPT,
        Column("index", INT16, "place in the concatenation that fc reads", least=0),
        Column("boundary", INT16, least=0),
        _REGION,
        Column("positions", INT32, "denominator of the sums", least=0),
        optional("sum_rms", SUM, "raw aux feature"),
        optional("sum_rms_normed", SUM, "after its norm; null without one"),
        optional("sum_share", SUM, "share of the block in the fused input"),
    ),
)
VARIANTS = Table(
    "variants",
    (
        VARIANT,
        Column("probe", STRING),
        Column("kind", STRING, values=("config", "intervention", "clean")),
        Column("parameters", STRING, "JSON"),
    ),
    key=("variant", "probe"),
)
CONDITIONS = Table(
    "conditions",
    (
        Column("variant", STRING, "condition of a probe with texts of its own"),
        PROMPT,
        optional("prompt_tokens", INT32),
        optional("text_tokens", INT32, "prompt and continuation; null where nothing was captured"),
        optional("double_bos", BOOL, "the prompt starts with two beginning-of-text tokens"),
        optional("left_out", STRING, "why there are no rows; null where there are"),
    ),
)
TOKENS = Table(
    "tokens",
    (
        PROMPT,
        optional("position", INT32, "in the text; null for a token that was only drafted"),
        Column("id", INT32, "target-vocabulary id"),
        Column("piece", STRING, "the token as text, with the space before it"),
    ),
)
ATTENDED = Table(
    "attended",
    (
        VARIANT,
        PROMPT,
        Column("anchor", INT32, "outside loops", least=0),
        STEP,
        Column(
            "position",
            INT32,
            "row of the key: its feature's position, t+s-1 for the chain's own row of step s, its token's in a block",
        ),
        Column("own", BOOL, "a row of the chain itself, not one made from the target's features"),
        Column("bucket", STRING, values=DISJOINT_BUCKETS),
        Column("mass", FLOAT, "attention on that key, mean over layers and heads; only the heaviest keys are kept"),
    ),
)
SHARED = {table.name: table for table in (ANCHORS, HEADS, STEPS, LAYERS, AUX, VARIANTS, CONDITIONS, TOKENS, ATTENDED)}
"""The tables that any probe may fill; others are declared by the probe that stores them (`driftscope.probes.Record.tables`)."""


def tables() -> dict[str, Table]:
    """Every table by name: the shared ones, then those that probes declare."""
    return {**SHARED, **VIEWS["tables"]()}


def table_named(name: str) -> Table:
    """The declaration of a table. Raises RunError for an unknown name."""
    if name in SHARED:
        return SHARED[name]
    known = tables()
    if name not in known:
        raise RunError(f"there is no table {name!r}; the tables are {', '.join(known)}")
    return known[name]


class CheckpointInfo(BaseModel):
    """The drafter checkpoint that was probed."""

    model_config = ConfigDict(extra="allow")
    path: str
    sha256: str
    layout: str
    switches: Switches = {}
    origins: dict[str, Origin] = {}
    warnings: list[str] = []


class TargetInfo(BaseModel):
    """The target that it drafts for."""

    model_config = ConfigDict(extra="allow")
    name: str
    fingerprint: str
    layers: Count
    hidden_size: Size
    sinks: list[Count] = []


class PromptInfo(BaseModel):
    """A prompt of the run. Lengths are in tokens; `text_length` is prompt and continuation."""

    model_config = ConfigDict(extra="allow")
    id: str
    category: str | None = None
    prompt_length: Count
    text_length: Count
    stopped: bool
    """The target ended the continuation itself."""


class RunInfo(BaseModel):
    """What `run.json` holds."""

    model_config = ConfigDict(extra="forbid")
    schema_version: int = SCHEMA_VERSION
    provenance: Provenance = {}
    checkpoint: CheckpointInfo
    target: TargetInfo
    settings: Settings = {}
    prompts: list[PromptInfo] = []
    findings: list[Finding] = []
    audit: Audit | None = None
    """The short audit (`driftscope.audit.short.ShortAudit.to_dict`), or {"decided", "reason", "warnings"} without it."""
    trust: Trust | None = None
    """What was seen of the target's texts and of the drafter's positive control (`driftscope.audit.trusting`): {"texts",
    "control"}, each with the `reason` that withholds a verdict, if any. Absent where too few prompts were measured."""
