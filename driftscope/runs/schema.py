"""The tables and `run.json` of a run: names, types and meaning of everything that is stored.

RMS is stored, in float32; L2 = RMS * sqrt(hidden_size), with `hidden_size` in `run.json`. Sums are float64. Steps count
from 1, boundary b is the residual stream after b target layers. A null is "not measured", never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from driftscope.chain.patches import REASONS
from driftscope.chain.verification_rules import RULES as RULE_NAMES
from driftscope.errors import RunError
from driftscope.files.fields import Audit, Count, Finding, Origin, Provenance, Settings, Size, Switches, Trust

SCHEMA_VERSION = 1

DISJOINT_BUCKETS = ("sink", "prompt", "committed", "drafted", "current", "virtual")
"""Parts of the keys of a query; their masses sum to 1."""
BUCKETS = (*DISJOINT_BUCKETS, "self_generated")
"""`self_generated` is drafted + current from step 2 on, and 0 at step 1; in a block of masks it is there from step 1 on."""
FEEDS = ("drafted", "text")

STRING = pa.dictionary(pa.int32(), pa.string())
BOOL, INT16, INT32, INT64 = pa.bool_(), pa.int16(), pa.int32(), pa.int64()
FLOAT, SUM = pa.float32(), pa.float64()


@dataclass(frozen=True)
class Column:
    """One column, or with a placeholder such as `rms/{site}` a family of optional ones."""

    name: str
    type: pa.DataType
    about: str = ""
    nullable: bool = False
    values: tuple[str, ...] | None = None
    """The strings that may occur; of a family, what may stand for the placeholder."""
    least: int | None = None
    """The smallest number that may occur."""
    whole: bool = False
    """A run has it in every row or in none: on reading it is plain where it is there, and NaN where it is not."""

    @property
    def family(self) -> str | None:
        """`rms/` for `rms/{site}`, None for a plain column."""
        head, brace, _ = self.name.partition("{")
        return head if brace else None

    def below_least(self, stored: pa.Array | pa.ChunkedArray) -> int | None:
        """The smallest of these numbers, where it may not occur."""
        low: int | None = None if self.least is None else pc.min(stored).as_py()
        return low if low is not None and self.least is not None and low < self.least else None

    def holds(self, name: str) -> bool:
        """Whether a column called `name` is declared by this one."""
        if self.family is None:
            return name == self.name
        member = name.removeprefix(self.family)
        return name.startswith(self.family) and bool(member) and (self.values is None or member in self.values)


@dataclass(frozen=True)
class Table:
    """A declared table."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row which several shards may repeat; the first is kept on reading."""

    def column(self, name: str) -> Column | None:
        """The declaration of `name`, or None."""
        if name not in self._known:
            self._known[name] = next((column for column in self.columns if column.holds(name)), None)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Column | None]:
        """By name: thousands of files are asked for the same columns."""
        return {}

    def conform(self, frame: pd.DataFrame) -> pa.Table:
        """`frame` with the declared types, declared columns first, the rest in the frame's order.

        Raises RunError for a missing or undeclared column, a value of another type, or a null where none may be.
        """
        fixed = [column for column in self.columns if column.family is None]
        missing = [c.name for c in fixed if (c.whole or not c.nullable) and c.name not in frame]
        if missing:
            raise RunError(f"table {self.name}: column {', '.join(missing)} is missing; see driftscope.runs.schema")
        unknown = [str(name) for name in frame if self.column(str(name)) is None]
        if unknown:
            declared = ", ".join(c.name for c in self.columns)
            raise RunError(f"table {self.name}: undeclared column {', '.join(unknown)}; declared are {declared}")
        names = [c.name for c in fixed]
        names += [str(name) for name in frame if str(name) not in names]
        arrays = {name: self._array(name, frame) for name in names}
        return pa.table(arrays)

    def frame(self, table: pa.Table) -> pd.DataFrame:
        """The stored rows as pandas: nullable integers are `Int32`/`Int64`, strings are categoricals.

        Raises RunError for a null or a number where no probe stores one.
        """
        self._check(table)
        frame = table.to_pandas(ignore_metadata=True, use_threads=False, split_blocks=True)
        for name in frame:
            column = self.column(str(name))
            if column is None or not column.nullable:
                continue
            if column.whole:
                if frame[name].dtype == object:
                    frame[name] = frame[name].astype("float64")
            elif pa.types.is_integer(column.type):
                frame[name] = frame[name].astype(f"Int{column.type.bit_width}")
        if self.key:
            frame = frame.drop_duplicates(list(self.key), ignore_index=True)
        return frame

    def _check(self, table: pa.Table) -> None:
        for name in table.column_names:
            column = self.column(name)
            if column is None or column.nullable:
                continue
            stored = table[name]
            low = column.below_least(stored)
            if stored.null_count or low is not None:
                what = "nulls" if stored.null_count else low
                raise RunError(
                    f"table {self.name} holds {what} in {name}, which no probe stores: changed or damaged; measure again"
                )

    def empty(self) -> pa.Table:
        """No rows, every plain column."""
        return pa.schema([(c.name, c.type) for c in self.columns if c.family is None]).empty_table()

    def _array(self, name: str, frame: pd.DataFrame) -> pa.Array:
        column = self.column(name)
        assert column is not None
        if name not in frame:
            return pa.nulls(len(frame), column.type)
        try:
            array = pa.array(frame[name], from_pandas=True)
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            array = array.cast(pa.string()).dictionary_encode() if column.type == STRING else array.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"table {self.name}, column {name}: expected {column.type}: {reason}") from error
        if array.null_count and not column.nullable:
            raise RunError(f"table {self.name}, column {name}: {array.null_count} of {len(array)} values are null")
        if (low := column.below_least(array)) is not None:
            raise RunError(f"table {self.name}, column {name}: {low} is less than {column.least}")
        if column.values is not None and column.family is None:
            other = sorted(set(array.dictionary.to_pylist()) - set(column.values))
            if other:
                known = ", ".join(column.values)
                raise RunError(f"table {self.name}, column {name}: {other[0]!r} is not one of {known}")
        return array


def _optional(name: str, kind: pa.DataType, about: str = "", values: tuple[str, ...] | None = None) -> Column:
    return Column(name, kind, about, nullable=True, values=values)


def _verified(name: str, kind: pa.DataType, about: str = "") -> Column:
    """Null in a run over captures that do not confirm their text as the target's: nothing tells what is accepted."""
    return Column(name, kind, about, nullable=True, whole=True)


_VARIANT = Column("variant", STRING, "condition under which the chains ran")
_FEED = Column("feed", STRING, "what a step embeds: its own drafted token, or the text's", values=FEEDS)
_PROMPT = Column("prompt", STRING, "prompt id")
_STEP = Column("step", INT16, least=1)
_REGION = Column("region", STRING, values=("sink", "prompt", "continuation"))

ANCHORS = Table(
    "anchors",
    (
        _VARIANT,
        _FEED,
        _PROMPT,
        Column("anchor", INT32, "position t at which the chain starts", least=0),
        _STEP,
        Column("loop", BOOL, "the anchor lies in a repetition loop of the target: not in default figures"),
        Column("near_tie", BOOL, "the horizon holds a position where the recording argmax differs from the text"),
        Column("drafted", INT32, "drafted token, target-vocabulary id"),
        Column("text", INT32, "the target's token at that position"),
        _verified("match", BOOL, "drafted == text at this step"),
        _verified("accepted", BOOL, "joint: match at this and all earlier steps"),
        _optional("rank", INT32, "of the text token among the draft logits, 1 = top; null outside their vocabulary"),
        _optional("prob", FLOAT, "drafter's probability of the text token; null as rank is"),
        _optional("top_prob", FLOAT, "drafter's highest probability"),
        _optional("sampling", FLOAT, "sum over v of min(p(v), q(v)), target and drafter; temperature in the variant"),
        _optional("logit_entropy", FLOAT, "of the drafter's distribution, nats"),
        _optional("entropy", FLOAT, "of the attention, nats, mean over layers and heads"),
        _optional("rms/{site}", FLOAT, "RMS at a site (q, k, v: mean over heads)"),
        _optional("cos_prev", FLOAT, "cosine of carry_k and carry_{k-1}; null at step 1"),
        _optional("cos_baseline", FLOAT, "cosine of carry_k(t) and the baseline's carry_1(t+k-1)"),
        _optional("matched_growth", FLOAT, "RMS carry_k(t) / RMS carry_1(t+k-1)"),
        _optional("update_ratio/{name}", FLOAT, "RMS of an update / RMS of the residual that it is added to"),
        _optional("mass/{bucket}", FLOAT, "attention mass, mean over layers and heads", BUCKETS),
        _optional("keys/{bucket}", INT32, "number of keys", BUCKETS),
        _optional("excess/{bucket}", FLOAT, "mass minus the position-matched baseline's", BUCKETS),
    ),
)
HEADS = Table(
    "heads",
    (
        _VARIANT,
        _FEED,
        _PROMPT,
        _STEP,
        Column("layer", INT16, least=0),
        Column("head", INT16, least=0),
        Column("anchors", INT32, "anchors outside loops: the denominator of the sums", least=0),
        _optional("mass/{bucket}", SUM, "sum over those anchors", BUCKETS),
        _optional("excess/{bucket}", SUM, "sum over those anchors", BUCKETS),
        _optional("entropy", SUM, "sum over those anchors, nats"),
    ),
)
STEPS = Table(
    "steps",
    (
        _VARIANT,
        _FEED,
        _PROMPT,
        _STEP,
        Column("anchors", INT32, "anchors outside loops", least=0),
        _verified("matches", INT32),
        _verified("reached", INT32, "anchors whose earlier steps were all accepted"),
        _verified("accepted", INT32, "joint"),
        _optional("sum/{quantity}", SUM, "sum over anchors outside loops"),
        _optional("served_rounds", INT32, "rounds of the served walk at K = step, loops kept"),
        _optional("served_accepted", INT64, "accepted tokens of that walk, without bonus tokens"),
        _optional("served_accepted_sq", INT64, "sum over rounds of the squared accepted count"),
    ),
)
LAYERS = Table(
    "layers",
    (
        _PROMPT,
        Column("boundary", INT16, least=0),
        _REGION,
        Column("positions", INT32, "denominator of the sums", least=0),
        _optional("sum_rms", SUM),
        _optional("sum_log_rms", SUM),
    ),
)
AUX = Table(
    "aux",
    (
        _PROMPT,
        Column("index", INT16, "place in the concatenation that fc reads", least=0),
        Column("boundary", INT16, least=0),
        _REGION,
        Column("positions", INT32, "denominator of the sums", least=0),
        _optional("sum_rms", SUM, "raw aux feature"),
        _optional("sum_rms_normed", SUM, "after its norm; null without one"),
        _optional("sum_share", SUM, "share of the block in the fused input"),
    ),
)
VARIANTS = Table(
    "variants",
    (
        _VARIANT,
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
        _PROMPT,
        _optional("prompt_tokens", INT32),
        _optional("text_tokens", INT32, "prompt and continuation; null where nothing was captured"),
        _optional("double_bos", BOOL, "the prompt starts with two beginning-of-text tokens"),
        _optional("left_out", STRING, "why there are no rows; null where there are"),
    ),
)
SIMILARITY = Table(
    "similarity",
    (
        _VARIANT,
        _FEED,
        _PROMPT,
        _STEP,
        Column("boundary", INT16, least=0),
        Column(
            "row", STRING, "of the target: t+k, t+k-1 or t, for step k of anchor t", values=("next", "same", "anchor")
        ),
        Column("anchors", INT32, "anchors outside loops", least=0),
        _optional("cka", SUM, "linear CKA of the carries and the boundary over those anchors, unbiased HSIC"),
        _optional("sum_cos", SUM, "sum of their cosines; null where the widths differ"),
    ),
)
TOKENS = Table(
    "tokens",
    (
        _PROMPT,
        _optional("position", INT32, "in the text; null for a token that was only drafted"),
        Column("id", INT32, "target-vocabulary id"),
        Column("piece", STRING, "the token as text, with the space before it"),
    ),
)
ATTENDED = Table(
    "attended",
    (
        _VARIANT,
        _PROMPT,
        Column("anchor", INT32, "outside loops", least=0),
        _STEP,
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
_THERE = "the row of the rejected step without drafting"
REJECTIONS = Table(
    "rejections",
    (
        _PROMPT,
        Column("anchor", INT32, "position t at which the chain starts", least=0),
        Column("loop", BOOL, "as in the table anchors: not in default figures"),
        _optional("step", INT16, "first step whose token differs from the text; null where all were accepted"),
        _optional("reason", STRING, "why, the first that holds; null where all were accepted", values=REASONS),
        _optional("mends_state", BOOL, "the real state alone drafts the text's token there; null in a block"),
        _optional("mends_pattern", BOOL, "so does the real attention alone; null in a block"),
        _optional("mends_values", BOOL, "so do the real values alone; null in a block"),
        _optional("rank", INT32, f"of the text's token at {_THERE}; null outside the draft vocabulary"),
        _optional("prob", FLOAT, f"the drafter's probability of it at {_THERE}; null as rank is"),
        _optional("target_prob", FLOAT, "the target's probability of it"),
        Column("gained", INT16, "accepted steps at which the row without drafting is wrong", least=0),
        Column("tie", BOOL, "a known end of the patched chains differs by a tie within rounding"),
    ),
)
TREES = Table(
    "trees",
    (
        Column("variant", STRING, "tree/ and the name of the tree; its shape is in the variant's parameters"),
        _PROMPT,
        Column("anchor", INT32, "position t at which the tree starts", least=0),
        _STEP,
        Column("loop", BOOL, "as in the table anchors: not in default figures"),
        _optional(
            "nodes",
            INT32,
            "fewest nodes with which the text's token of this step is accepted; null where none are enough",
        ),
    ),
)
RULES = Table(
    "rules",
    (
        Column("variant", STRING, "rules/ and the sampling of target and draft, which are in its parameters"),
        Column(
            "text",
            STRING,
            "whose text the chains are fed: the target's greedy one, or one sampled so",
            values=("greedy", "sampled"),
        ),
        _PROMPT,
        _STEP,
        Column("rule", STRING, values=RULE_NAMES),
        Column("anchors", INT32, "outside loops: the denominator of the sums", least=0),
        _optional(
            "acceptance", SUM, "sum of the chance that this step's token is accepted, earlier ones being the text's"
        ),
        _optional(
            "joint",
            SUM,
            "sum of estimates of the chance that this and all earlier ones are; sampled texts, and greedy rule",
        ),
    ),
)
TABLES = {
    table.name: table
    for table in (
        *(ANCHORS, HEADS, STEPS, LAYERS, AUX, SIMILARITY, VARIANTS, CONDITIONS, TOKENS, ATTENDED, REJECTIONS),
        *(TREES, RULES),
    )
}


def table_named(name: str) -> Table:
    """The declaration of a table. Raises RunError for an unknown name."""
    if name not in TABLES:
        raise RunError(f"there is no table {name!r}; the tables are {', '.join(TABLES)}")
    return TABLES[name]


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
