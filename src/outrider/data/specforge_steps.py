"""Steps around SpecForge's own: ``python steps.py prepare …`` before it trains, ``python steps.py rename HEAD`` after.

Written into the folder of `outrider train --backend specforge` and run there by the Python that has SpecForge (torch and
transformers are its own); never imported by Outrider. Safe to run again: what is there already stays.

Source: SpecForge 0.2.0, `modeling/draft/base.py` (`load_vocab_mapping`), `modeling/target/target_head.py`,
`runtime/data_plane/offline_reader.py` and `algorithms/eagle3/data.py` (the tensors of a feature file).
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from transformers import AutoModelForCausalLM

FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py")
PER_FOLDER = 2000
BATCH_TOKENS = 8192
Row = tuple[int, list[int], list[int]]


def say(text: str) -> None:
    """A line for the person who waits."""
    sys.stderr.write(f"[steps] {text}\n")


def save(value: object, place: Path) -> None:
    """Written beside, then moved: a file is whole or not there."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{place.name}.part")
    torch.save(value, beside)
    os.replace(beside, place)


def vocabulary_map(source: Path, place: Path) -> None:
    """Ids of the draft's vocabulary -> SpecForge's two tensors: offsets to the target's ids, and which of those are in it."""
    described = json.loads(source.read_text(encoding="utf-8"))
    ids = torch.tensor(described["ids"], dtype=torch.long)
    inside = torch.zeros(described["target_vocab_size"], dtype=torch.bool)
    inside[ids] = True
    save({"d2t": ids - torch.arange(len(ids)), "t2d": inside}, place)


def view(target: Path, place: Path) -> None:
    """Links to the target's files, beside an index where it has none: SpecForge finds the output layer through one."""
    place.mkdir(exist_ok=True)
    for pattern in FILES:
        for file in target.glob(pattern):
            link = place / file.name
            if not link.exists():
                link.unlink(missing_ok=True)
                link.symlink_to(file.resolve())


def rows(source: Path, max_length: int) -> Iterator[Row]:
    """Number, token ids and loss mask of the rows, cut as SpecForge cuts them."""
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            row = json.loads(line)
            yield number, row["input_ids"][:max_length], row["loss_mask"][:max_length]


def feature_file(folder: Path, number: int) -> Path:
    """Where a row's states lie."""
    return folder / f"rows_{number // PER_FOLDER * PER_FOLDER}" / f"row_{number}.ckpt"


def batches(source: Iterator[Row]) -> Iterator[list[Row]]:
    """Rows that follow each other, about BATCH_TOKENS with their padding."""
    batch: list[Row] = []
    for row in source:
        if batch and max(len(row[1]), *(len(one[1]) for one in batch)) * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def features(target: Path, source: Path, max_length: int, layers: list[int], folder: Path) -> None:
    """The target's states of every row: the inputs of `layers` side by side, and what its output layer reads."""
    left = [row for row in rows(source, max_length) if not feature_file(folder, row[0]).exists()]
    if not left:
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = AutoModelForCausalLM.from_pretrained(target, dtype=torch.bfloat16, trust_remote_code=False)
    model = loaded.base_model.to(device).eval()
    needed = sum(len(ids) for _, ids, _ in left) * (len(layers) + 1) * model.config.hidden_size * 2
    folder.mkdir(parents=True, exist_ok=True)
    if needed > (free := shutil.disk_usage(folder).free):
        sys.exit(
            f"{folder} needs {needed / 2**30:.1f} GiB for the states, {free / 2**30:.1f} GiB are free: free some"
        )
    done = 0
    for batch in batches(iter(left)):
        width = max(len(ids) for _, ids, _ in batch)
        padded = torch.tensor([ids + [0] * (width - len(ids)) for _, ids, _ in batch], device=device)
        inside = torch.tensor(
            [[1] * len(ids) + [0] * (width - len(ids)) for _, ids, _ in batch], device=device
        )
        with torch.inference_mode():
            out = model(input_ids=padded, attention_mask=inside, output_hidden_states=True, use_cache=False)
        if len(out.hidden_states) != model.config.num_hidden_layers + 1:
            sys.exit(
                f"{target}: {len(out.hidden_states)} states of {model.config.num_hidden_layers} layers; not a plain decoder"
            )
        read = torch.cat([out.hidden_states[layer] for layer in layers], dim=-1).cpu()
        last = out.last_hidden_state.cpu()
        for place, (number, ids, mask) in enumerate(batch):
            one = {
                "input_ids": torch.tensor(ids),
                "loss_mask": torch.tensor(mask),
                "hidden_state": last[place : place + 1, : len(ids)].clone(),
                "aux_hidden_state": read[place : place + 1, : len(ids)].clone(),
            }
            save(one, feature_file(folder, number))
        done += len(batch)
        say(f"states of {done:,} of {len(left):,} rows")


def rename(head: Path) -> None:
    """SpecForge's name for a P-EAGLE draft -> the one by which vLLM 0.32 takes a draft of that build for an EAGLE-3 one.

    Source: vLLM 0.32, `transformers_utils/configs/eagle.py`: it puts "Eagle3" before a name that does not end in it.
    """
    place = head / "config.json"
    config = json.loads(place.read_text(encoding="utf-8"))
    config["architectures"] = ["LlamaForCausalLMEagle3"]
    beside = place.with_name(f".{place.name}.part")
    beside.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    os.replace(beside, place)


def prepare(given: argparse.Namespace) -> None:
    """Vocabulary map, then links, then states: what the arguments name."""
    if not given.mapping.exists():
        vocabulary_map(given.vocabulary, given.mapping)
    target = Path(given.target)
    if not target.is_dir():
        target = Path(snapshot_download(given.target, revision=given.revision, allow_patterns=list(FILES)))
    view(target, given.view)
    if given.features:
        features(given.view, given.rows, given.max_length, given.layers, given.features)


def main() -> None:
    """The step that the arguments name."""
    parser = argparse.ArgumentParser(description="Steps around SpecForge's own.")
    steps = parser.add_subparsers(required=True)
    before = steps.add_parser("prepare", help="make what must lie here before SpecForge trains")
    before.set_defaults(step=prepare)
    before.add_argument("--target", required=True, help="hub id or folder of the target")
    before.add_argument("--revision", help="of a hub id")
    before.add_argument(
        "--view", type=Path, required=True, help="folder that gets links to the target's files"
    )
    before.add_argument("--vocabulary", type=Path, required=True, help="the draft's vocabulary (JSON)")
    before.add_argument("--mapping", type=Path, required=True, help="where its map for SpecForge goes")
    before.add_argument("--rows", type=Path, help="token ids and loss masks (JSON lines)")
    before.add_argument("--features", type=Path, help="where the target's states of the rows go")
    before.add_argument("--layers", type=int, nargs=3, help="the layers whose inputs the draft reads")
    before.add_argument("--max-length", type=int, help="tokens of a row that are used")
    after = steps.add_parser("rename", help="give an exported P-EAGLE head the name that vLLM knows")
    after.set_defaults(step=lambda given: rename(given.head))
    after.add_argument("head", type=Path)
    given = parser.parse_args()
    given.step(given)


if __name__ == "__main__":
    main()
