"""What the pages say of scaling is what the code says."""

from pathlib import Path

from click.testing import CliRunner

from outrider.cli.scale_plan import scale_plan_command
from outrider.deploy.scaling_policy import SETTINGS
from outrider.deploy.service_times import built_in

ROOT = Path(__file__).parents[2]


def test_the_committed_plan_is_what_the_command_prints() -> None:
    """results/scale/plan.txt can be made again by anyone, to the letter."""
    found = CliRunner().invoke(scale_plan_command, ["--width", "100"])
    assert found.output == (ROOT / "results" / "scale" / "plan.txt").read_text(encoding="utf-8")


def test_every_setting_and_run_has_its_place() -> None:
    """A setting or a built-in run that docs/scale.md does not name cannot exist."""
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert [name for name in (*SETTINGS, *built_in()) if f"`{name}`" not in page] == []
