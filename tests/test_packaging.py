"""What an installation promises: light to import, and nothing in the tree left out of the wheel."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path

import pytest

import driftscope

ROOT = Path(__file__).resolve().parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_driftscope_does_not_import_torch() -> None:
    result = run("import sys, driftscope; dir(driftscope); sys.exit(int('torch' in sys.modules))")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_the_command_answers_without_torch(flag: str) -> None:
    (script,) = entry_points(group="console_scripts", name="driftscope")
    module, function = script.value.split(":")
    result = run(
        f"import sys; from {module} import {function}\n"
        f"sys.argv = ['driftscope', {flag!r}]\n"
        f"try: code = {function}()\n"
        "except SystemExit as stop: code = stop.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "sys.exit(code)"
    )
    assert result.returncode == 0, result.stderr
    assert ("Usage" if flag == "--help" else driftscope.__version__) in result.stdout


def test_public_names_resolve() -> None:
    for name in driftscope.__all__:
        assert getattr(driftscope, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = driftscope.no_such_name


def test_the_version_is_the_installed_one() -> None:
    assert driftscope.__version__ == version("driftscope")


def test_every_folder_with_code_is_a_listed_package() -> None:
    setuptools = CONFIG["tool"]["setuptools"]
    folders = {name: ROOT / folder for name, folder in setuptools["package-dir"].items()}
    found = set()
    for package, folder in folders.items():
        for path in folder.rglob("*.py"):
            found.add(".".join((package, *path.parent.relative_to(folder).parts)))
    assert found == set(setuptools["packages"])
    for package in found:
        base = max((name for name in folders if f"{package}.".startswith(f"{name}.")), key=len)
        rest = package.removeprefix(base).strip(".")
        assert (folders[base] / rest.replace(".", "/") / "__init__.py").is_file(), f"{package} has no __init__.py"


def names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[><=!~; ]", line)[0].lower().replace("_", "-") for line in requirements}


def test_every_imported_package_is_a_declared_dependency() -> None:
    imported = set()
    for folder in ("driftscope", "probes", "app"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    modules = [node.module]
                imported |= {module.split(".")[0] for module in modules}
    owners = packages_distributions()
    # pytest is there when pytest loads the plugin; Ray and device maps are asked for by name, and what lacks is said.
    extras = CONFIG["project"]["optional-dependencies"]
    declared = names([*CONFIG["project"]["dependencies"], *extras["pytest"], *extras["ray"], *extras["device-map"]])
    foreign = imported - set(sys.stdlib_module_names) - {"driftscope"}
    undeclared = {module for module in foreign if not names(owners.get(module, [module])) & declared}
    assert "numpy" in foreign
    assert not undeclared


def test_every_dependency_is_pinned_in_the_constraints() -> None:
    pins = names((ROOT / "constraints.txt").read_text(encoding="utf-8").split())
    extras = CONFIG["project"]["optional-dependencies"].values()
    required = names(CONFIG["project"]["dependencies"]).union(*(names(extra) for extra in extras))
    assert required - pins <= {"driftscope"}
