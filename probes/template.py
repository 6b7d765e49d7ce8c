"""Template: does the drafter hold up when the prompt is not wrapped as it was trained?

Each prompt is asked again without its beginning-of-text token, without the chat template, without both, in the chat format of
another family, and under other system prompts; the target's continuation is captured anew. Acceptance, drift and growth
are compared with those of the regular prompt, paired over prompts. Sinks are those of the run.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from driftscope.captures.conditions import Condition, PlannedText, Source, distinct, spread
from driftscope.errors import DriftscopeError, PromptError
from driftscope.figures.template import template_figures, template_rows
from driftscope.probes.base import Variant
from driftscope.probes.condition_rows import condition_rows
from driftscope.probes.record import INTERVALS, Caption, Figures, Layout, Record
from driftscope.probes.wording import FORMATS, LONG_SYSTEM, OTHER_SYSTEM

if TYPE_CHECKING:
    import pandas as pd

    from driftscope.chain.pair import Pair
    from driftscope.chain.prompt_chains import Settings, Subject
    from driftscope.runs.folder import RunFolder
    from driftscope.target.prompts import Prompt

REGULAR = "template/regular"
ABOUT = {
    "no_bos": "without the beginning-of-text token",
    "no_template": "the contents alone, each with a blank line after it, behind the beginning-of-text token if there was one",
    "no_bos_no_template": "the contents alone, each with a blank line after it",
    "double_bos": "the rendered chat tokenized with special tokens once more, a common slip of serving code",
}
SYSTEMS = {
    "system_none": "no system prompt, an empty one where the template would put in its own",
    "system_default": "what the template does without a system prompt",
    "system_other": "another short system prompt",
    "system_long": "a system prompt of some 300 words",
}


def figures(run: RunFolder, depth: int | None) -> Figures:
    return template_figures(*(run.table(name, "template") for name in ("steps", "heads", "conditions")))


def sentences(figures: Figures) -> list[tuple[str, str]]:
    """(condition, what it leaves of the acceptance)."""
    told = figures.get("conditions", {})
    return [(name, found["sentence"].removeprefix(f"{name}: ")) for name, found in told.items()]


RECORD = Record(
    figures=figures,
    about={
        "depth": "steps of the chains",
        "prompts": "asked under every condition",
        "double_bos": "conditions whose prompts start with two beginning-of-text tokens",
        "regular": "acceptance and drift under the regular template",
        "conditions": "by condition: the same, and what is kept of it on the same prompts",
    },
    rows=template_rows,
    axes=("condition", "quantity"),
    sentences=sentences,
    heading="Template: how much depends on how the prompt is wrapped?",
    pictures=(
        Caption(
            "template",
            "Against the regular template",
            "On the same prompts: acceptance length kept, growth relative to the regular one, change of the excess;"
            f" {INTERVALS}.",
            "template",
            table=Layout(("condition",), forms={"length_kept": ".1%"}),
        ),
    ),
    page="robustness",
)


@dataclass(frozen=True)
class TemplateProbe:
    """Drafted chains over up to `prompts` prompts, evenly spaced among those of the run, under each condition."""

    prompts: int = 16
    formats: tuple[str, ...] = tuple(FORMATS)
    """Chat formats of other families: names in `driftscope.probes.wording`, or Jinja files."""
    name: str = "template"
    question: str = "How much does acceptance depend on the chat template, the BOS token and the system prompt?"
    shard: str = "template"
    record = RECORD

    def __post_init__(self) -> None:
        if self.prompts < 1:
            raise DriftscopeError(f"the template probe needs at least 1 prompt, got {self.prompts}")

    @property
    def templates(self) -> dict[str, str]:
        """Jinja text of the formats by the name of their condition. DriftscopeError for a file that cannot be read."""
        return {Path(name).stem: FORMATS[name] if name in FORMATS else read(name) for name in self.formats}

    def boundaries(self, pair: Pair) -> tuple[int, ...]:
        return ()

    def variants(self, pair: Pair) -> list[Variant]:
        asked = {name: {"about": text} for name, text in {**ABOUT, **SYSTEMS}.items()}
        formats = {name: {"format": text} for name, text in self.templates.items()}
        changed = [Variant(f"template/{name}", "config", {**told}) for name, told in {**asked, **formats}.items()]
        return [Variant(REGULAR, "clean", {"prompts": self.prompts}), *changed]

    def conditions(self, pair: Pair, sources: Sequence[Source], settings: Settings, new_tokens: int) -> list[Condition]:
        templates = self.templates
        made: list[Condition] = []
        for source in spread(sources, self.prompts):
            made += distinct(self._of(source, pair.target.tokenizer, templates))
        return made

    def _of(self, source: Source, tokenizer: Any, templates: Mapping[str, str]) -> Iterator[Condition]:
        prompt = source.prompt
        regular = source.token_ids
        bos = tokenizer.bos_token_id
        started = bos is not None and regular[:1] == (bos,)
        opening = (bos,) if started else ()

        def condition(name: str, ids: Sequence[int] = (), left_out: str | None = None) -> Condition:
            return Condition(f"template/{name}", prompt.id, prompt.category, tuple(ids), left_out)

        def encode(text: str, special: bool = False) -> tuple[int, ...]:
            return tuple(tokenizer(text, add_special_tokens=special)["input_ids"])

        yield condition("regular", regular)
        if started:
            yield condition("no_bos", without_bos(regular, bos))
        else:
            yield condition("no_bos", left_out="the regular prompt starts with no BOS token")
        if prompt.messages is None:
            for name in ("no_template", "no_bos_no_template", "double_bos", *templates, *SYSTEMS):
                yield condition(name, left_out="not a chat")
            return
        # Chat models often end the text right after a bare question; a blank line makes them go on.
        contents = encode("".join(f"{m.content}\n\n" for m in prompt.messages if m.content))
        yield condition("no_template", (*opening, *contents))
        yield condition("no_bos_no_template", contents)
        # The regular prompt holds what was rendered, unlike decode() which may join tokens otherwise.
        twice = encode(render(prompt, tokenizer), special=True)
        if bos is not None and twice[:2] == (bos, bos):
            yield condition("double_bos", twice)
        else:
            yield condition("double_bos", left_out="tokenizing the rendered chat adds no second BOS token")
        for name, form in templates.items():
            yield condition(name, (*opening, *encode(render(prompt, tokenizer, form))))
        for name in SYSTEMS:
            try:
                yield condition(name, encode(with_system(name, prompt, tokenizer)))
            except PromptError:
                yield condition(name, left_out="the chat template fails with this system prompt")

    def measure(self, subject: Subject) -> dict[str, pd.DataFrame]:
        assert subject.condition is not None
        return condition_rows(subject, subject.condition.name)

    def cost(self, depth: int) -> float:
        return float(1 + len(ABOUT) + len(self.formats) + len(SYSTEMS))

    def planned(self, prompts: int, settings: Settings) -> list[PlannedText]:
        return [PlannedText(min(prompts, self.prompts) * int(self.cost(settings.depth)), 1)]


def read(path: str) -> str:
    """A chat template's text. Raises DriftscopeError where there is none."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise DriftscopeError(
            f"chat format {path}: {reason}; name one of {', '.join(FORMATS)} or a Jinja file"
        ) from None


def without_bos(ids: Sequence[int], bos: int) -> tuple[int, ...]:
    """The tokens from the first that is no BOS token on."""
    return tuple(ids[next((i for i, token in enumerate(ids) if token != bos), len(ids)) :])


def system(prompt: Prompt, content: str | None) -> Prompt:
    """The chat under another system prompt; None is without one."""
    from driftscope.target.prompts import Message

    rest = tuple(m for m in prompt.messages or () if m.role != "system")
    head = () if content is None else (Message("system", content),)
    return dataclasses.replace(prompt, messages=(*head, *rest))


def with_system(name: str, prompt: Prompt, tokenizer: Any) -> str:
    """The chat rendered under one of `SYSTEMS`. Raises PromptError where the template fails."""
    contents = {"system_other": OTHER_SYSTEM, "system_long": LONG_SYSTEM}
    if name in contents:
        return render(system(prompt, contents[name]), tokenizer)
    default = render(system(prompt, None), tokenizer)
    if name == "system_default":
        return default
    try:
        # The shorter one: without a default of the template's own, an empty system turn would only add its frame.
        return min(default, render(system(prompt, ""), tokenizer), key=len)
    except PromptError:
        return default


def render(prompt: Prompt, tokenizer: Any, form: str | None = None) -> str:
    """The chat as text up to where the answer begins, by the tokenizer's template or by `form`. Raises PromptError where
    the tokenizer's own fails, DriftscopeError where `form` does."""
    from driftscope.target.prompts import tokenize_prompts

    if form is not None:
        chat = [{"role": m.role, "content": m.content} for m in prompt.messages or ()]
        try:
            text = tokenizer.apply_chat_template(chat, chat_template=form, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise DriftscopeError(f"a chat format of the template probe fails: {error}; mend its Jinja text") from error
        return str(text)
    with warnings.catch_warnings():
        # Said once, when the run's own prompts were tokenized.
        warnings.simplefilter("ignore")
        kept, _ = tokenize_prompts([prompt], tokenizer, max_tokens=1 << 30)
    return kept[0].text


PROBE = TemplateProbe()
