#!/usr/bin/env bash
# Make the virtual environment that `make serve` and `make test` use: the CPU build of vLLM, locked, and Outrider itself.
#   scripts/install.sh VENV [engine|train|dev]
# `engine` is what serving needs; `train` adds what training a draft head needs; `dev` adds that and what lint and tests need.
# Safe to run again and to interrupt: each step leaves a stamp only when it is done.
set -euo pipefail
tag=install
. "$(dirname "$0")/installing.sh"
venv=$1 what=${2:-engine}
torch='torch==2.13.0+cpu'
pytorch_index='https://download.pytorch.org/whl/cpu'

platform="$(uname -s) $(uname -m)"
if [[ $platform != "Linux x86_64" ]]; then
  say "There is no locked CPU build of vLLM for $platform; it exists for Linux x86_64."
  say "Instead: 1. run this in a Linux x86_64 machine or container; or"
  say "         2. install vLLM for this machine in an environment of its own, then \`pip install .\` here, and name that"
  say "            environment's Python as \`engine.python\` in your stack (docs/serve.md, \"Another engine environment\")."
  exit 1
fi
need_python serve
free=$(free_mib "$venv")
if [[ ! -d $venv ]] && ((free < 6000)); then
  say "The environment takes about 4 GB, and 6,000 MiB while it is made; where $venv goes $free MiB are free. Free some, or name another place: make serve VENV=/path"
  exit 1
fi

step() {  # NAME FILES… -- COMMAND…: run the command unless its stamp already carries the digest of FILES
  local name=$1 files=()
  shift
  while [[ $1 != -- ]]; do files+=("$1"); shift; done
  shift
  local digest
  digest=$(digest_of "${files[@]}")
  done_before "$venv/.done-$name" "$digest" && return 0
  say "$name …"
  "$@"
  printf '%s' "$digest" >"$venv/.done-$name"
}

install_torch() {
  # The plain CPU build. `torch` alone would bring gigabytes of CUDA. PyTorch's index publishes one wheel per Python, so this
  # one line cannot carry a hash; version and build are exact.
  pip install --no-deps "$torch" 2>/dev/null ||
    pip install --no-deps --index-url "$pytorch_index" "$torch"
}

lock "$venv"
make_venv "$venv"
step torch "$here/scripts/install.sh" -- install_torch
say_once="$venv/.done-engine-cpu"
[[ -f $say_once ]] || say "vLLM's CPU build and what it needs: about 600 MB to fetch, 3.5 GB on disk, one to three minutes"
step engine-cpu "$here/requirements/engine-cpu.txt" -- install_locked "$here/requirements/engine-cpu.txt"
step project "$here/pyproject.toml" "$here/plugin/pyproject.toml" -- install_project
[[ $what == train || $what == dev ]] && step train "$here/requirements/train.txt" -- install_locked "$here/requirements/train.txt"
[[ $what == dev ]] && step dev "$here/requirements/dev.txt" -- install_locked "$here/requirements/dev.txt"
exit 0
