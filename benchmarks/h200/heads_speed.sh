#!/usr/bin/env bash
# What the heads of heads.sh are worth to one user and to eight: no draft, EAGLE-3 and P-EAGLE on one accelerator, with `outrider bench`.
#   heads_speed.sh RUNS DATA NAME [K_P_EAGLE]       into RUNS/NAME-speed; without a K: EAGLE-3 alone, at the K of its stack
set -euo pipefail
runs=$1 data=$2 name=$3
arms=()
[[ -z ${4:-} ]] || arms=(--arm "p-eagle:k=$4,model=$runs/$name-p-eagle")
PYTHONUNBUFFERED=1 exec python3 -m outrider bench "$runs/$name-eagle3/stack.yaml" "${arms[@]}" \
  --set humaneval --set gsm8k --set mt-bench --data "$data" --limit "${LIMIT:-64}" \
  --concurrency 1,8 --requests "${REQUESTS:-1=8,8=48}" --output-tokens 128 --warmup 2 --natural-end 0 \
  --trials "${TRIALS:-1}" --no-interleave --no-report --out "$runs/$name-speed" >>"$runs/$name-speed.log" 2>&1
