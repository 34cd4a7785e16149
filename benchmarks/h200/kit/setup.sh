#!/usr/bin/env bash
# On the GPU machine, once, in this repository's root, with the parts in ~/parts/kit: join them, unzip vLLM into ~/site and aiperf
# into an environment of its own, copy the code to ~/outrider, and see that all is there. Afterwards: . ~/env.sh
set -euo pipefail
began=$SECONDS here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
cat ~/parts/kit/p[0-9][0-9]/part | tar -C "$work" -xf -
aiperf=~/bench/lib/python3.12/site-packages
mkdir -p ~/site ~/runs ~/cache "$aiperf"
python3 "$here/unzip.py" ~/site "$work"/{vllm,train}/*.whl &
unzipping=$!
python3 -m venv --without-pip ~/bench
python3 "$here/unzip.py" "$aiperf" "$work"/aiperf/*.whl
wait $unzipping
rm -rf ~/data && mv "$work/data" ~/data && rm -rf "$work" ~/parts/kit
printf '#!%s\nimport sys\nfrom aiperf.cli import app\nsys.exit(app())\n' ~/bench/bin/python3 >~/bench/bin/aiperf
chmod +x ~/bench/bin/aiperf
rm -rf ~/outrider && mkdir ~/outrider && tar --exclude=./.gpu --exclude=./.git -cf - . | tar -C ~/outrider -xf -
cat >~/env.sh <<'X'
export PYTHONPATH=$HOME/site:$HOME/outrider/src:$HOME/outrider/plugin/src VLLM_USE_FLASHINFER_SAMPLER=0 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1
export OUTRIDER_CACHE=$HOME/cache OUTRIDER_AIPERF=$HOME/bench/bin/aiperf OUTRIDER_H200_MODELS=$HOME/models OUTRIDER_DATA=$HOME/data
cd ~/outrider
X
. ~/env.sh
env -u PYTHONPATH ~/bench/bin/aiperf --version
python3 -c 'import torch; print(torch.cuda.device_count(), "accelerators, torch", torch.__version__)'
python3 -c 'from outrider.engines.vllm.adapter import VllmEngine; from outrider.stack.load import load_stack; print(VllmEngine().find(load_stack(None)))'
echo "setup took $((SECONDS - began)) s"
