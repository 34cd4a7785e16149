#!/usr/bin/env bash
# Resolve requirements/*.in into locked files with every hash the registry gives. Needs `uv`.
# torch is left out: scripts/install.sh installs its CPU build. torchvision, torchaudio and torchcodec are left out because
# their registry builds do not import beside the CPU torch, and text serving does not need them.
set -euo pipefail
cd "$(dirname "$0")/../requirements"
common=(--quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links
        --python-version 3.11 --python-platform x86_64-unknown-linux-gnu)
torch_links=${PIP_FIND_LINKS:-https://download.pytorch.org/whl/torch/}
uv pip compile "${common[@]}" --override override.txt --find-links "$torch_links" \
  --no-emit-package torch --no-emit-package torchvision --no-emit-package torchaudio --no-emit-package torchcodec \
  --output-file engine-cpu.txt engine-cpu.in ../pyproject.toml
uv pip compile "${common[@]}" --constraint engine-cpu.txt --output-file dev.txt dev.in
# Training: only what the engine's environment lacks.
mapfile -t held < <(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package=\1/p' engine-cpu.txt)
uv pip compile "${common[@]}" --override override.txt --override override-train.txt --find-links "$torch_links" \
  --constraint engine-cpu.txt --constraint dev.txt "${held[@]}" \
  --no-emit-package torch --no-emit-package torchvision --no-emit-package torchaudio --output-file train.txt train.in
# The load generator's own environment: nothing of vLLM's is in it.
uv pip compile "${common[@]}" --output-file bench.txt bench.in
# The chart's tests: the core, and Kubernetes' schemas.
uv pip compile "${common[@]}" --constraint engine-cpu.txt --constraint dev.txt --output-file deploy.txt deploy.in ../pyproject.toml
# The front's image: the core alone.
uv pip compile "${common[@]}" --constraint engine-cpu.txt --output-file core.txt ../pyproject.toml
