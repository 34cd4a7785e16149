#!/usr/bin/env bash
# What a head of heads.sh is worth to one user and to eight: no draft and EAGLE-3 on one accelerator, with `outrider bench`.
#   heads_speed.sh RUNS DATA NAME [OPTIONS…]       into RUNS/NAME-speed; OPTIONS of `outrider bench` come last and win, such as
#   --arm p-eagle:k=5,model=RUNS/NAME-p-eagle   --arm ngram:k=4   --arm draft-model:k=4,model=FOLDER   --trials 2
set -euo pipefail
runs=$1 data=$2 name=$3
shift 3
PYTHONUNBUFFERED=1 exec python3 -m outrider bench "$runs/$name-eagle3/stack.yaml" \
  --set humaneval --set gsm8k --set mt-bench --data "$data" --limit 64 \
  --concurrency 1,8 --requests 1=32,8=128 --output-tokens 128 --warmup 2 --natural-end 0 \
  --trials 1 --no-interleave --no-report --out "$runs/$name-speed" "$@" >>"$runs/$name-speed.log" 2>&1
