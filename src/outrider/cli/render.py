"""`outrider render`: a stack as values of the Helm chart, as manifests, or as an Argo CD ApplicationSet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from outrider.cli.serve import refuse_made_up
from outrider.core.errors import RenderError
from outrider.core.files import put_whole
from outrider.deploy.applicationset import applicationset
from outrider.deploy.render import CHART, PROFILES, as_yaml, manifests, with_profiles
from outrider.deploy.values import Wish, values_of
from outrider.engines.choose import engine_of
from outrider.stack.find_facts import Source
from outrider.stack.load import load_stack
from outrider.stack.shapes import shaped

# Services are named after a release; `-canary` may follow a namespace.
NAMES = {"release": r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", "namespace": r"[a-z0-9]([-a-z0-9]{0,54}[a-z0-9])?"}
HEAD = "# Made by `outrider render`. Target and draft belong together: change the stack and render again.\n"


def _chart(ctx: click.Context, _option: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(CHART)
        ctx.exit(0)


def _name(_ctx: click.Context, option: click.Parameter, name: str) -> str:
    if not re.fullmatch(NAMES[str(option.name)], name):
        raise click.BadParameter(
            f"{name!r}: small letters, digits and dashes between them; a release at most 40 and a letter first, a "
            "namespace at most 56."
        )
    return name


@click.command("render")
@click.argument("stack", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; default: standard output.",
)
@click.option(
    "--manifests",
    "as_manifests",
    is_flag=True,
    help="Print Kubernetes manifests instead of values; needs `helm`.",
)
@click.option(
    "--profile",
    "profiles",
    type=click.Choice(PROFILES),
    multiple=True,
    help="What the cluster has beside Kubernetes; again for more. None: minimal, no CRD is needed.",
)
@click.option("--front-image", default="", metavar="IMAGE", help="Of the Dockerfile's target `front`.")
@click.option(
    "--engine-image", default="", metavar="IMAGE", help="Of its target `engine-cuda` or `engine-cpu`."
)
@click.option(
    "--engine-version",
    "version",
    default="",
    metavar="VERSION",
    help="vLLM in that image; default: the one that was tried.",
)
@click.option(
    "--split-lanes", is_flag=True, help="Two engine Deployments: interactive with the draft, batch without."
)
@click.option(
    "--release", default="outrider", show_default=True, callback=_name, help="Name of the Helm release."
)
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    callback=_name,
    help="Namespace of the manifests; with --applicationset NAMESPACE-canary and NAMESPACE-prod.",
)
@click.option(
    "--applicationset",
    "repository",
    metavar="REPO_URL",
    help="Print an Argo CD ApplicationSet for this Git repository instead: envs/canary/values.yaml, then envs/prod/values.yaml.",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Ask no hub. What only it knows is not in the values: commits of sides without a revision, hashes of files. It is said.",
)
@click.option(
    "--facts",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="As of `outrider check`: a folder with models' config.json.",
)
@click.option(
    "--chart",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_chart,
    help="Print the chart's folder and exit.",
)
def render_command(
    stack: Path | None,
    out: Path | None,
    profiles: tuple[str, ...],
    repository: str | None,
    **given: Any,
) -> None:
    """Turn STACK into values for the Helm chart that comes with Outrider; the stack is checked first, as by `check`.

    \b
      outrider render my-stack.yaml --front-image … --engine-image … -o values.yaml
      helm install llama "$(outrider render --chart)" -f values.yaml

    A hub model without a revision is pinned to the commit that the hub has now, with the hashes of its files; a hub that does
    not answer ends it with 11, as `check`. Profiles:
    keda or hpa (scaling), prometheus (alerts and dashboard), kueue (GPU quotas by lane), argocd (checked and gated syncs).
    docs/deploy.md leads from an empty cluster to a served pair.
    """
    release, namespace = given["release"], given["namespace"]
    if repository:
        _put(as_yaml(applicationset(release, repository, namespace)), out)
        return
    wish = Wish(given["front_image"], given["engine_image"], given["version"], given["split_lanes"])
    source = Source(given["facts"], given["offline"])
    loaded = load_stack(stack)
    refuse_made_up(loaded, asked=False)
    values = values_of(shaped(loaded), engine_of(loaded), wish, source, _say)
    if not loaded.serve.keys:
        _say(
            "[keys] no `serve.keys`: the chart refuses to open the door without (outrider key new), or name keys.existingSecret"
        )
    text = HEAD + as_yaml(with_profiles(values, profiles))
    _put(manifests(text, release, namespace) if given["as_manifests"] else text, out)


def _put(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    put_whole(
        out,
        text,
        lambda error: RenderError(
            f"{out} cannot be written: {error.strerror or error}", hint="Name another place with -o."
        ),
    )
    _say(f"wrote {out}")


def _say(line: str) -> None:
    click.echo(line, err=True)
