# What the installers beside this file share. Sourced; `tag` is what stands in front of each line that they say.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

say() { printf '[%s] %s\n' "$tag" "$*" >&2; }

need_python() {  # TARGET: end with what to do, unless $PYTHON is one that Outrider runs on
  "$python" -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info < (3, 14)))' && return 0
  say "Python 3.11, 3.12 or 3.13 is needed, found $("$python" --version 2>&1). Name another: make $1 PYTHON=python3.11"
  exit 1
}

free_mib() {  # FOLDER: on its disk; the nearest folder above that is there counts
  local folder=$1
  while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
  df -Pm "$folder" | awk 'NR==2 {print $4}'
}

lock() {  # VENV: one installer at a time; held until this process ends
  mkdir -p "$(dirname "$1")"
  exec 9>"$1.lock"
  flock --nonblock 9 || { say "another install is at work on $1; waiting for it"; flock 9; }
}

digest_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

done_before() {  # STAMP DIGEST
  [[ -f $1 && $(<"$1") == "$2" ]]
}

make_venv() {  # VENV: an interrupted start leaves a python without pip: made anew then
  "$1/bin/python" -m pip --version >/dev/null 2>&1 && return 0
  say "virtual environment in $1"
  "$python" -m venv --clear "$1"
}

# pip of $venv; its one line per package about a local index that lacks it says nothing to a user.
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@" 2> >(grep -v 'is ignored: it is neither' >&2); }
install_locked() { pip install --no-deps --require-hashes --requirement "$1"; }
install_project() { pip install --no-deps --no-build-isolation --editable "$here" --editable "$here/plugin"; }

prometheus_into() {  # FOLDER: prometheus and promtool, the system's or out of Debian's package; without root, nothing is started
  local program found work
  mkdir -p "$1"
  for program in prometheus promtool; do
    # not one that an earlier run put here, which PATH may name
    if found=$(command -v "$program") && ! [[ $found -ef $1/$program ]]; then ln -sf "$found" "$1/$program"; fi
  done
  [[ -x $1/prometheus && -x $1/promtool ]] && return 0
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "This is no Debian or Ubuntu. Install Prometheus (with promtool) so that both are on PATH, and run this again."
    return 1
  fi
  work=$(mktemp -d)
  # as root apt would fetch as a user of its own, who may not write here
  if ! (cd "$work" && apt-get -q -o APT::Sandbox::User=root download prometheus >/dev/null); then
    rm -rf "$work"
    say "apt-get could not fetch the package. Update its lists (as root: apt-get update), or install it (apt-get install prometheus)."
    return 1
  fi
  dpkg-deb --extract "$work"/prometheus_*.deb "$work/unpacked"
  for program in prometheus promtool; do
    rm -f "$1/$program"
    install -m 755 "$work/unpacked/usr/bin/$program" "$1/$program"
  done
  rm -rf "$work"
  say "$("$1/prometheus" --version 2>&1 | head -1)"
}
