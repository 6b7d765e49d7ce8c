"""What is asked of a probe run, as the command and the API fill it and everything below takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from driftscope.captures.cache import CaptureCache
from driftscope.errors import DriftscopeError
from driftscope.probes import DEFAULT, Probe, chosen
from driftscope.probes.options import configured
from driftscope.target.model import Target
from driftscope.target.placement import DeviceMap

Shards = Literal["local", "ray"]


@dataclass(frozen=True)
class Texts:
    """What the target continues, or has continued already."""

    prompts: str | Path | None = None
    """A file of prompts; the shipped ones without it."""
    chat_template: str | Path | None = None
    """A Jinja file to use instead of the target's own."""
    capture: str | Path | None = None
    """A folder of `driftscope capture` instead of prompts."""
    max_new_tokens: int = 128
    cache_dir: str | Path | None = None
    """Where captures are kept; None is the user's cache folder."""

    def __post_init__(self) -> None:
        if self.capture is not None and (self.prompts is not None or self.chat_template is not None):
            raise DriftscopeError("--prompts and --chat-template change nothing about --capture; leave them out")

    def cache(self) -> CaptureCache:
        """The cache of captures."""
        return CaptureCache(Path(self.cache_dir) if self.cache_dir is not None else None)


@dataclass(frozen=True)
class Chains:
    """What the run's chains share, before the pair is known."""

    depth: int = 8
    """Steps of the tables; a block drafter has no more than its block."""
    horizon: int = 16
    """Steps that every anchor has ahead of it; at least `depth`."""
    anchors: int | None = None
    """So many anchors of each prompt, evenly over its text; None is all."""
    sink: str | Sequence[int] = "auto"
    """`auto` detects the target's sinks, `none`, or positions."""
    seed: int = 0


@dataclass(frozen=True)
class Places:
    """Where and how target and drafter are loaded."""

    device: str = "auto"
    dtype: str = "auto"
    device_map: DeviceMap | None = None
    """Spreads the target over devices and memory, as transformers does."""
    drafter_device: str | None = None
    """Where the drafter runs; None is with its target."""
    deterministic: bool = False
    """Only kernels whose results repeat bit for bit."""
    revision: str | None = None
    trust_remote_code: bool = False

    def of_pair(self) -> dict[str, Any]:
        """The keyword arguments of `driftscope.load_pair`."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "deterministic"}


@dataclass(frozen=True)
class ProbeRequest:
    """One measurement: which drafter and target, on which texts, which questions, where, and into which folder."""

    checkpoint: str | Path
    out: Path
    target: str | Path | Target | None = None
    """None is the one that the checkpoint's config names."""
    overrides: Mapping[str, Any] | None = None
    """Switches of DrafterConfig by name."""
    probes: tuple[Probe, ...] = ()
    audit: bool = True
    """A short audit first, kept in the run with the finding that it makes."""
    resume: bool = False
    shards: Shards = "local"
    until: float | None = None
    """Stop as soon as the interval of drift's cost is no wider than so many accepted tokens; prompts then come in a random
    order that the seed fixes."""
    texts: Texts = field(default_factory=Texts)
    chains: Chains = field(default_factory=Chains)
    places: Places = field(default_factory=Places)

    def __post_init__(self) -> None:
        places = self.places
        if self.until is not None:
            if not self.until > 0:
                raise DriftscopeError(f"--until {self.until:g} is no width: give accepted tokens above 0, such as 0.05")
            if self.shards == "ray":
                raise DriftscopeError("--until looks at one prompt after another; leave out --shards ray")
            if self.probes and not any(item.name == "cost" for item in self.probes):
                raise DriftscopeError("--until looks at what drift costs: add the probe cost to --probes")
        if self.shards == "ray" and (places.device_map or places.drafter_device is not None or places.deterministic):
            raise DriftscopeError(
                "--shards ray: workers place the pair by --device alone; leave out --device-map, --drafter-device and"
                " --deterministic"
            )

    @classmethod
    def of(
        cls,
        checkpoint: str | Path,
        out: str | Path,
        *,
        probes: Sequence[str | Probe] | str = DEFAULT,
        options: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> ProbeRequest:
        """From flat keyword arguments, as `driftscope.probe` takes them: every field of this class and of its parts.

        probes: names, or probes that are set up already. options: of probes, such as `{"noise.alphas": (0.1, 0.5)}`.
        Raises DriftscopeError for an unknown probe or option, and TypeError for an argument that does not exist.
        """
        parts: dict[str, Any] = {}
        for name, kind in (("texts", Texts), ("chains", Chains), ("places", Places)):
            own = {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
            parts[name] = kind(**own)
        if isinstance(probes, str) or any(isinstance(probe, str) for probe in probes):
            wanted = chosen(cast(Sequence[str], probes))
        else:
            wanted = list(cast(Sequence[Probe], probes))
        return cls(checkpoint, Path(out), probes=tuple(configured(wanted, options or {})), **parts, **given)
