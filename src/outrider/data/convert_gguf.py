"""Turn one GGUF file into a bf16 safetensors folder: ``python convert_gguf.py FILE.gguf EMPTY_FOLDER``.

Run as a script by the engine's Python, which has torch, transformers, gguf and accelerate; never imported
by Outrider. Prints one JSON line of the versions that did it.

Source: transformers 5.19 `modeling_utils.py` (`gguf_file=` dequantises; the quantizer left on the model would
make `save_pretrained` refuse).
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(source: Path, folder: Path) -> None:
    """Weights, tokenizer with its chat template, and generation config of `source`, into `folder`."""
    where, name = str(source.parent), source.name
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(
        where, gguf_file=name, dtype=torch.bfloat16, trust_remote_code=False
    )
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
    names = ("transformers", "gguf", "accelerate", "torch")
    sys.stdout.write(json.dumps({name: version(name) for name in names}) + "\n")
