#!/usr/bin/env bash
# Make the environment of the load generator (aiperf), locked and apart from vLLM's: `outrider bench` finds it in .venv-bench.
#   scripts/install_bench.sh [VENV]
# Safe to run again and to interrupt: the stamp is written when all is there. It brings no torch and no CUDA.
set -euo pipefail
tag=bench-env
. "$(dirname "$0")/installing.sh"
venv=${1:-$here/.venv-bench}
requirements="$here/requirements/bench.txt"

need_python bench-env
lock "$venv"
digest=$(digest_of "$requirements" "$here"/scripts/install{_bench,ing}.sh)
[[ -x $venv/bin/aiperf ]] && done_before "$venv/.done" "$digest" && exit 0
free=$(free_mib "$venv")
if ((free < 2000)); then
  say "The environment needs about 1.2 GB; where $venv goes $free MiB are free. Free some, or name another place:"
  say "make bench-env BENCH_VENV=/path, and OUTRIDER_AIPERF=/path/bin/aiperf when you run outrider bench."
  exit 1
fi
say "the load generator in $venv: 230 MB to fetch, 1.2 GB on disk, about a minute …"
make_venv "$venv"
install_locked "$requirements"
if "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then
  say "torch came along, which the lock does not name: remove $venv and run this again."
  exit 1
fi
"$venv/bin/aiperf" --version >/dev/null
printf '%s' "$digest" >"$venv/.done"
