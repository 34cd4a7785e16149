#!/usr/bin/env bash
# Put Debian's Prometheus into a folder, without root and without starting a service, for `make scale-demo`.
#   scripts/install_prometheus.sh FOLDER   →   FOLDER/usr/bin/prometheus and promtool
# Those that are already on the PATH are linked instead. Safe to run again.
set -euo pipefail
tag=prometheus
. "$(dirname "$0")/installing.sh"

prometheus_into "$1/usr/bin" || {
  say "Or name one: OUTRIDER_PROMETHEUS=/path/to/prometheus make scale-demo"
  exit 1
}
