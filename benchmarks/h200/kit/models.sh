#!/usr/bin/env bash
# On the GPU machine, in the background while other jobs run: join the models' parts and convert each into a bf16 folder (CPU only).
# A model is begun when ~/parts/NAME.done is there.   q15: Qwen2.5-Coder-1.5B-Instruct, q05: Qwen2.5-Coder-0.5B-Instruct
set -euo pipefail
. ~/env.sh
for one in "q15 qwen2.5-coder-1.5b-instruct" "q05 qwen2.5-coder-0.5b-instruct"; do
  set -- $one
  until [[ -f ~/parts/$1.done ]]; do sleep 1; done
  mkdir -p ~/models/".$2" && cat ~/parts/"$1"/p[0-9][0-9]/part >~/models/"$1.gguf"
  CUDA_VISIBLE_DEVICES= nice python3 src/outrider/data/convert_gguf.py ~/models/"$1.gguf" ~/models/".$2"
  mv ~/models/".$2" ~/models/"$2" && rm -rf ~/parts/"$1" ~/models/"$1.gguf"
done
cp benchmarks/h200/{qwen2.5-coder-1.5b,governed}.yaml ~/models/
touch ~/models/done
