"""What is run in SpecForge's environment, as argv lists and as a script, and how that is told to the person who runs it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.train.specforge_config import (
    DRAFT_CONFIG,
    FEATURES,
    HEAD,
    MAPPING,
    OUTPUT,
    PROMPTS,
    RUN_CONFIG,
    RUN_ID,
    VIEW,
    template_name,
)
from outrider.train.specforge_target import VERSION, SpecForgeSettings, SpecForgeTarget, aux_layers, is_hub_id

VOCABULARY, STEPS = "vocabulary.json", "steps.py"
_STATES, _STATE_BYTES = 4, 2  # three layers and the last, in bf16


@dataclass(frozen=True, slots=True)
class SpecForgeFiles:
    """What was written. `commands`: argv lists, to be run one after the other in `folder`, in SpecForge's environment.

    `tokens`: of all rows, `answer_tokens`: those that the target wrote. `coverage`: share of these that the draft's vocabulary
    holds. `dropped`: rows left out, by reason.
    """

    folder: Path
    commands: tuple[tuple[str, ...], ...]
    rows: int
    tokens: int
    answer_tokens: int
    coverage: float
    dropped: Mapping[str, int]


def commands(target: SpecForgeTarget, settings: SpecForgeSettings) -> tuple[tuple[str, ...], ...]:
    """Prepare, train, export, and for P-EAGLE rename: argv lists for the folder, in SpecForge's environment."""
    prepare = ["python", STEPS, "prepare", f"--target={target.name}", "--view", VIEW]
    prepare += [f"--revision={target.revision}"] if target.revision and is_hub_id(target.name) else []
    prepare += ["--vocabulary", VOCABULARY, "--mapping", MAPPING]
    if not settings.online:
        layers = [str(layer) for layer in aux_layers(target)]
        prepare += ["--rows", PROMPTS, "--max-length", str(settings.max_length)]
        prepare += ["--features", FEATURES, "--layers", *layers]
    eagle3 = settings.method == "eagle3"
    export = [
        "specforge",
        "export",
        "--to",
        "sglang" if eagle3 else "hf",
        "--checkpoint",
        f"{OUTPUT}/{RUN_ID}-latest",
    ]
    export += ["--draft-config", DRAFT_CONFIG, "--output-dir", HEAD]
    rename = () if eagle3 else (("python", STEPS, "rename", HEAD),)
    return tuple(prepare), ("specforge", "train", "--config", RUN_CONFIG), tuple(export), *rename


def launch_script(steps: Sequence[Sequence[str]]) -> str:
    """A shell script of the steps. What it is given goes to `specforge train`, whose options are ``section.field=value``."""
    lines = [shlex.join(step) for step in steps]
    lines[1] += ' "$@"'
    return (
        "#!/usr/bin/env bash\n"
        f"# In an environment with SpecForge {VERSION}: bash launch.sh [section.field=value ...]\n"
        'set -euo pipefail\ncd "$(dirname "$0")"\n' + "\n".join(lines) + "\n"
    )


def counts_in_words(counts: Mapping[str, int]) -> str:
    """``no answer: 3, …``"""
    return ", ".join(f"{reason}: {count:,}" for reason, count in sorted(counts.items()))


def readme(files: SpecForgeFiles, target: SpecForgeTarget, settings: SpecForgeSettings) -> str:
    """What the folder is, what to run where, and how the head comes back."""
    template = template_name(target.chat_template)
    form = (
        f"its name for this target's would be {template}" if template else "it has no name for this target's"
    )
    return f"""What SpecForge {VERSION} needs to train a draft head ({settings.method}) for {target.name}.

{files.rows:,} rows, {files.answer_tokens:,} answer tokens; the draft's vocabulary holds {files.coverage:.2%} of them.
Left out: {counts_in_words(files.dropped) or "nothing"}.
The rows are the target's own token ids and loss mask: SpecForge tokenises nothing and applies no chat template
({form}).

1. On the machine that trains: pip install specforge=={VERSION}
{_needs(files, target, settings)}
{_target(target)}2. Copy this folder there and run: bash launch.sh
   What follows goes to `specforge train`, for example: bash launch.sh training.num_epochs=3
3. It leaves the head in `{HEAD}` (config.json and model.safetensors), checkpoints in `{OUTPUT}`.
4. Copy `{HEAD}` back, name it as `draft.model` of a stack with method {settings.method}, and run: outrider pair write STACK
   That makes pair.json beside the head: the hashes of both halves, by which they are known to belong together.
"""


def _needs(files: SpecForgeFiles, target: SpecForgeTarget, settings: SpecForgeSettings) -> str:
    if settings.online:
        gpus = settings.capture_gpus + settings.trainer_gpus
        return f"""   It needs {gpus} GPUs: SGLang makes the target's states on {settings.capture_gpus} of them.
   That SGLang is 0.5.14 with SpecForge's capture patch (scripts/apply_sglang_spec_capture_patch.sh in SpecForge's repository);
   Mooncake must be installed too (mooncake-transfer-engine). Before a second attempt take the folder `control` away."""
    size = files.tokens * _STATES * _STATE_BYTES * target.facts.hidden_size / 2**30
    disk = f"{size:,.1f} GiB on disk for the target's states (`{FEATURES}`)"
    return f"""   It needs {settings.trainer_gpus} GPU(s) and {disk}; no server.
   A run that was interrupted goes on from its last checkpoint: bash launch.sh training.resume_from={OUTPUT}"""


def _target(target: SpecForgeTarget) -> str:
    if is_hub_id(target.name):
        return ""
    return "   The target is read from the folder above: on another machine, copy it and name its place there in launch.sh.\n"
