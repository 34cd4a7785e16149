#!/usr/bin/env bash
# Make the environment of the load generator (aiperf), locked and apart from vLLM's: `outrider bench` finds it in .venv-bench.
#   scripts/install_bench.sh [VENV]
# Safe to run again and to interrupt: the stamp is written when all is there. It brings no torch and no CUDA.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:-$here/.venv-bench}
lock="$here/requirements/bench.txt"

say() { printf '[bench-env] %s\n' "$*" >&2; }

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))'; then
  say "Python 3.11, 3.12 or 3.13 is needed, found $("$python" --version 2>&1). Name another: make bench-env PYTHON=python3.11"
  exit 1
fi
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock --nonblock 9 || { say "another install is at work on $venv; waiting for it"; flock 9; }
digest=$(cat "$lock" "$here/scripts/install_bench.sh" | sha256sum | cut -d' ' -f1)
[[ -x $venv/bin/aiperf && -f $venv/.done && $(<"$venv/.done") == "$digest" ]] && exit 0
free_mib=$(df -Pm "$(dirname "$venv")" | awk 'NR==2 {print $4}')
if ((free_mib < 2000)); then
  say "The environment needs about 1.2 GB; $(dirname "$venv") has $free_mib MiB free. Free some, or name another place:"
  say "make bench-env BENCH_VENV=/path, and OUTRIDER_AIPERF=/path/bin/aiperf when you run outrider bench."
  exit 1
fi
say "the load generator in $venv: 230 MB to fetch, 1.2 GB on disk, about a minute …"
# An interrupted start leaves a python without pip: made anew then.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
# pip's one line per package about a local index that lacks it says nothing to a user.
"$venv/bin/python" -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes --requirement "$lock" \
  2> >(grep -v 'is ignored: it is neither' >&2)
if "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then
  say "torch came along, which the lock does not name: remove $venv and run this again."
  exit 1
fi
"$venv/bin/aiperf" --version >/dev/null
printf '%s' "$digest" >"$venv/.done"
