#!/usr/bin/env bash
# Build the wheel, install it into a second environment, and use it there from another directory.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Modules that were deleted since would come back out of an old build/lib.
rm -rf build/lib build/bdist.*
.venv/bin/python -m build --wheel --no-isolation --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --no-deps "$work"/dist/*.whl

# The dependencies come from the first environment. A path in a .pth file adds that folder only and does not read the
# .pth files in it, so that the editable install there stays out of sight.
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/dependencies.pth"

cd "$work"
"$work/venv/bin/driftscope" --version
"$work/venv/bin/driftscope" --help >/dev/null
"$work/venv/bin/python" "$root/.ci/import_all.py" "$work"/dist/*.whl
