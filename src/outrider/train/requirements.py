"""What training needs beside the engine, how it gets there, and what to do when it stopped."""

from __future__ import annotations

MODULES = ("torch", "transformers", "safetensors", "numpy", "speculators", "hs_connectors", "datasets")
INSTALL = (
    "Install it into the engine's environment: `make train-env`, or `pip install '.[train]'` in Outrider's checkout; where "
    "another torchvision must not come with it, `pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0 datasets "
    "multiprocess dill xxhash`."
)
AGAIN = "Repeat the command: it goes on from the last checkpoint."
SMALLER = (
    "Repeat the command with `--option cache_features=false`: it goes on from the last checkpoint. Or lower batch_tokens or "
    "max_row_tokens, with another --out."
)
