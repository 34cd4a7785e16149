#!/usr/bin/env bash
# EAGLE-3 and P-EAGLE heads for both named targets, trained and measured on one accelerator with `outrider train` alone.
#   heads.sh SMOLLM2.yaml QWEN.yaml DATA RUNS     (S_, Q_ settings below; a repeated call goes on; `-` for a stack: not this target)
# The two targets' chains run beside each other: writing is bound by the host, training by the device. RUNS/NAME.failed says that the
# conversations could not be had, RUNS/NAME.done that both heads ended, well or not.
set -uo pipefail
smollm2=$1 qwen=$2 data=$3 runs=$4
S_CONVERSATIONS=${S_CONVERSATIONS:-40000} S_MINUTES=${S_MINUTES:-4} S_TOKENS=${S_TOKENS:-384}
Q_CONVERSATIONS=${Q_CONVERSATIONS:-12000} Q_MINUTES=${Q_MINUTES:-3} Q_TOKENS=${Q_TOKENS:-384}
ALONE_S=${ALONE_S:-0}  # how long EAGLE-3's trainer has the accelerator without P-EAGLE's beside it, to see its speed
OPTIONS=${OPTIONS:-}  # of every training; S_P_OPTIONS and Q_P_OPTIONS of a target's P-EAGLE head, such as `--layers 2`
mkdir -p "$runs"

run() {  # NAME STACK OPTIONS…: one `outrider train`, its words in NAME.log
  local name=$1 stack=$2
  shift 2
  echo "$(date +%T) $name begins"
  # shellcheck disable=SC2086
  PYTHONUNBUFFERED=1 python3 -m outrider train "$stack" --set-data "$data" --out "$runs/$name" $OPTIONS "$@" >>"$runs/$name.log" 2>&1
  local status=$?
  echo "$(date +%T) $name ended with $status"
  return $status
}

again() {  # once more after a failure: it goes on from its last checkpoint, a minute old
  run "$@" || run "$@"
}

chain() {  # PREFIX STACK CONVERSATIONS TOKENS MINUTES K-OF-EAGLE3 P-OPTIONS SETS…: data, then both heads beside each other
  local prefix=$1 stack=$2 conversations=$3 tokens=$4 minutes=$5 length=$6 more=$7
  shift 7
  local eagle3=(--method eagle3 --conversations "$conversations" --answer-tokens "$tokens" --minutes "$minutes" --draft-length "$length" "$@")
  local parallel=(--method p-eagle --rows-of "$runs/$prefix-eagle3" --minutes "$minutes" --draft-length 5 "$@")
  run "$prefix-eagle3" "$stack" "${eagle3[@]}" --until data || { touch "$runs/$prefix.failed"; return 1; }
  again "$prefix-eagle3" "$stack" "${eagle3[@]}" &
  sleep "$ALONE_S"
  # shellcheck disable=SC2086
  again "$prefix-p-eagle" "$stack" "${parallel[@]}" $more &
  wait
  touch "$runs/$prefix.done"
}

[[ $smollm2 == - ]] || chain smollm2-135m "$smollm2" "$S_CONVERSATIONS" "$S_TOKENS" "$S_MINUTES" 3 "${S_P_OPTIONS:-}" --set humaneval --set mt-bench --set gsm8k &
until [[ $qwen == - || -f $qwen ]]; do sleep 1; done  # its weights may still be on their way
[[ $qwen == - ]] || chain qwen2.5-coder-1.5b "$qwen" "$Q_CONVERSATIONS" "$Q_TOKENS" "$Q_MINUTES" 4 "${Q_P_OPTIONS:-}" --draft-vocab 32768 --set humaneval --set mt-bench --set gsm8k &
wait
