#!/usr/bin/env bash
# From nothing to the four drafters: target, training text, features, training. Arguments go to train.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
"$python" examples/smollm2/target.py build/target
test -e build/smollm2/conversations.jsonl || "$python" examples/smollm2/conversations.py
test -e build/smollm2/features.safetensors || "$python" examples/smollm2/features.py
for variant in eagle3.1 post-norm eagle3 fc-norm; do
  test -e "build/smollm2/$variant/model.safetensors" || "$python" examples/smollm2/train.py "$variant" "$@"
done
