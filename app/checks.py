"""What is typed into *New run*, looked at before anything is started: a wrong path must not cost half a minute."""

from __future__ import annotations

from pathlib import Path

from driftscope.app.rights import check_readable
from driftscope.errors import DriftscopeError
from driftscope.findings.words import counted
from driftscope.target.prompts import load_prompts

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf")
_MOST = 200
"""Files of a folder that are looked at."""


def is_path(text: str) -> bool:
    """Whether this is meant as a path of this machine; `owner/name` without such a folder is a Hub id."""
    path = Path(text).expanduser()
    local = text.startswith((".", "~", "/", "\\")) or len(path.parts) != 2
    return local or path.exists() or path.parent.exists()


def check_checkpoint(text: str) -> str:
    """What it is, in words. Raises DriftscopeError if it cannot be a checkpoint."""
    if not is_path(text):
        return f"{text} is no folder here: it is asked of the Hub"
    path = _there(text, "checkpoint")
    if path.is_file():
        if path.suffix not in _WEIGHTS:
            raise DriftscopeError(
                f"{path} is no weight file ({', '.join(_WEIGHTS)}); name one, or the folder with its config"
            )
        return "a weight file"
    names = _names(path)
    if not any(name.endswith(_WEIGHTS) for name in names):
        raise DriftscopeError(f"{path} holds no weights ({', '.join(_WEIGHTS)}): name the folder in which they lie")
    return f"a folder with weights{' and a config' if 'config.json' in names else ', without a config'}"


def check_target(text: str) -> str:
    """As `check_checkpoint`, of the target; empty for none."""
    if not text:
        return ""
    # Old names of the Hub have no owner.
    if not is_path(text) or (
        len(Path(text).parts) == 1 and not Path(text).exists() and not text.startswith((".", "~", "/"))
    ):
        return f"{text} is no folder here: it is asked of the Hub"
    path = _there(text, "target")
    if not (path / "config.json").is_file():
        raise DriftscopeError(f"{path} holds no config.json: a target is a folder as transformers saves it, or a name")
    return "a folder with a config"


def check_prompts(text: str) -> tuple[int, str]:
    """How many prompts, and what they are; the shipped ones for no path."""
    if not text:
        count = len(load_prompts(None))
        return count, f"the {count} prompts that are shipped"
    count = len(load_prompts(_there(text, "prompts")))
    return count, counted(count, "prompt")


def check_out(text: str) -> str:
    """Raises DriftscopeError unless it is a folder below those of the app that is not in use."""
    path = Path(text).expanduser()
    check_readable(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise DriftscopeError(f"{path} exists: choose another folder, or go on with that run below")
    return "a new folder"


def _there(text: str, what: str) -> Path:
    path = Path(text).expanduser()
    check_readable(path)
    if not path.exists():
        raise DriftscopeError(f"{what} {text}: no such file or folder (seen from {Path.cwd()})")
    return path


def _names(folder: Path) -> list[str]:
    try:
        return [part.name for part, _ in zip(folder.iterdir(), range(_MOST), strict=False)]
    except OSError as error:
        raise DriftscopeError(f"{folder} cannot be read: {error.strerror or error}") from error
