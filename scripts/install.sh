#!/usr/bin/env bash
# Make the virtual environment that `make serve` and `make test` use: the CPU build of vLLM, locked, and Outrider itself.
#   scripts/install.sh VENV [engine|train|dev]
# `engine` is what serving needs; `train` adds what training a draft head needs; `dev` adds that and what lint and tests need.
# Safe to run again and to interrupt: each step leaves a stamp only when it is done.
set -euo pipefail
venv=$1 what=${2:-engine}
here=$(cd "$(dirname "$0")/.." && pwd)
torch='torch==2.13.0+cpu'
pytorch_index='https://download.pytorch.org/whl/cpu'

say() { printf '[install] %s\n' "$*" >&2; }

platform="$(uname -s) $(uname -m)"
if [[ $platform != "Linux x86_64" ]]; then
  say "There is no locked CPU build of vLLM for $platform; it exists for Linux x86_64."
  say "Instead: 1. run this in a Linux x86_64 machine or container; or"
  say "         2. install vLLM for this machine in an environment of its own, then \`pip install .\` here, and name that"
  say "            environment's Python as \`engine.python\` in your stack (docs/serve.md, \"Another engine environment\")."
  exit 1
fi
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))'; then
  say "Python 3.11, 3.12 or 3.13 is needed, found $("$python" --version 2>&1). Name another: make serve PYTHON=python3.11"
  exit 1
fi
free_mib=$(df -Pm "$here" | awk 'NR==2 {print $4}')
if [[ ! -d $venv ]] && ((free_mib < 6000)); then
  say "The environment needs about 4 GB; $here has $free_mib MiB free. Free some, or name another place: make serve VENV=/path"
  exit 1
fi

step() {  # NAME FILES… -- COMMAND…: run the command unless its stamp already carries the digest of FILES
  local name=$1 files=()
  shift
  while [[ $1 != -- ]]; do files+=("$1"); shift; done
  shift
  local digest
  digest=$(cat "${files[@]}" | sha256sum | cut -d' ' -f1)
  [[ -f $venv/.done-$name && $(<"$venv/.done-$name") == "$digest" ]] && return 0
  say "$name …"
  "$@"
  printf '%s' "$digest" >"$venv/.done-$name"
}

# pip's one line per package about a local index that lacks it says nothing to a user.
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@" 2> >(grep -v 'is ignored: it is neither' >&2); }

install_torch() {
  # The plain CPU build. `torch` alone would bring gigabytes of CUDA. PyTorch's index publishes one wheel per Python, so this
  # one line cannot carry a hash; version and build are exact.
  pip install --no-deps "$torch" 2>/dev/null ||
    pip install --no-deps --index-url "$pytorch_index" "$torch"
}
install_locked() { pip install --no-deps --require-hashes --requirement "$1"; }
install_project() { pip install --no-deps --no-build-isolation --editable "$here" --editable "$here/plugin"; }

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock --nonblock 9 || { say "another install is at work on $venv; waiting for it"; flock 9; }
[[ -x $venv/bin/python ]] || { say "virtual environment in $venv"; "$python" -m venv "$venv"; }
step torch "$here/scripts/install.sh" -- install_torch
say_once="$venv/.done-engine-cpu"
[[ -f $say_once ]] || say "vLLM's CPU build and what it needs: about 600 MB to fetch, 3.5 GB on disk, one to three minutes"
step engine-cpu "$here/requirements/engine-cpu.txt" -- install_locked "$here/requirements/engine-cpu.txt"
step project "$here/pyproject.toml" "$here/plugin/pyproject.toml" -- install_project
[[ $what == train || $what == dev ]] && step train "$here/requirements/train.txt" -- install_locked "$here/requirements/train.txt"
[[ $what == dev ]] && step dev "$here/requirements/dev.txt" -- install_locked "$here/requirements/dev.txt"
exit 0
