"""What training needs beside the engine, and how it gets there."""

from __future__ import annotations

MODULES = ("torch", "transformers", "safetensors", "numpy", "speculators", "hs_connectors", "datasets")
INSTALL = (
    "Install it into the engine's environment: `make train-env` or `pip install 'outrider[train]'`; where another torchvision "
    "must not come with it, `pip install --no-deps speculators==0.9.0 hs-connectors==0.9.0 datasets multiprocess dill xxhash`."
)
