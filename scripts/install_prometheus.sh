#!/usr/bin/env bash
# Put Debian's Prometheus into a folder, without root and without starting a service, for `make scale-demo`.
#   scripts/install_prometheus.sh FOLDER   →   FOLDER/usr/bin/prometheus (and promtool)
# A `prometheus` that is already on the PATH is linked instead. Safe to run again.
set -euo pipefail
folder=$1
say() { printf '[prometheus] %s\n' "$*" >&2; }

[[ -x $folder/usr/bin/prometheus ]] && exit 0
mkdir -p "$folder/usr/bin"
if installed=$(command -v prometheus); then
  ln -sf "$installed" "$folder/usr/bin/prometheus"
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  say "This is no Debian or Ubuntu. Install Prometheus yourself, and repeat with"
  say "  OUTRIDER_PROMETHEUS=/path/to/prometheus make scale-demo"
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
if ! (cd "$work" && apt-get download -q prometheus >/dev/null); then
  say "apt-get could not fetch the package. Update its lists (as root: apt-get update), or install it (apt-get install prometheus)."
  exit 1
fi
dpkg-deb --extract "$work"/prometheus_*.deb "$folder"
say "$("$folder/usr/bin/prometheus" --version | head -1)"
