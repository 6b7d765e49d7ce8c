#!/usr/bin/env bash
# From nothing to the drafters: target, training text, features, training. Arguments go to train.py.
# Every stage goes on where it was killed: run it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-.venv/bin/python}
text=${TEXT_TOKENS:-1500000}
"$python" examples/smollm2/target.py build/target
"$python" examples/smollm2/conversations.py --tokens "$text"
"$python" examples/smollm2/features.py
train() {
  test -e "build/smollm2/$1/model.safetensors" || "$python" examples/smollm2/train.py "${@:2}" --name "$1"
}
train eagle3 eagle3 "$@"
train eagle3.1 eagle3.1 "$@"
train eagle3-cold eagle3 --cold "$@"
train post-norm post-norm "$@"
train fc-norm fc-norm "$@"
