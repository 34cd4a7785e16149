"""Files are whole or not there: what was there before stays until the new text is on the disk."""

import os
from pathlib import Path

import pytest

from outrider.core.errors import MeasurementError
from outrider.core.files import placed, put_whole


def refused(error: OSError) -> MeasurementError:
    """The caller's words."""
    return MeasurementError(f"lost: {error.strerror}", hint="Free space.")


def scratch(path: Path) -> Path:
    """Where the text is written first."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def test_a_text_is_put_whole_into_a_folder_that_was_not_there(tmp_path: Path) -> None:
    """Every character as it was given, line ends too; nothing else is left in the folder."""
    place = tmp_path / "new" / "file.txt"
    put_whole(place, "é\r\nb\n", refused)
    assert place.read_bytes() == "é\r\nb\n".encode()
    put_whole(place, "shorter", refused)
    assert place.read_bytes() == b"shorter"
    assert [path.name for path in place.parent.iterdir()] == ["file.txt"]


def test_the_file_keeps_its_permissions_and_a_link_stays_a_link(tmp_path: Path) -> None:
    """A private file does not become readable to all; what a link points to is replaced, not the link."""
    place, link = tmp_path / "real" / "file.txt", tmp_path / "link.txt"
    put_whole(place, "old", refused)
    place.chmod(0o600)
    link.symlink_to(place)
    put_whole(link, "new", refused)
    assert link.is_symlink()
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("new", 0o600)
    assert [path.name for path in place.parent.iterdir()] == ["file.txt"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """The kernel's own ENOSPC: the caller's error with its hint, the old text in its place, nothing beside it."""
    place = tmp_path / "file.txt"
    put_whole(place, "old", refused)
    scratch(place).symlink_to("/dev/full")
    with pytest.raises(MeasurementError, match="lost: No space left") as caught:
        put_whole(place, "new" * 100_000, refused)
    assert caught.value.hint == "Free space."
    assert isinstance(caught.value.__cause__, OSError)
    assert place.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_a_folder_that_cannot_be_made_is_the_callers_error(tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(MeasurementError, match="lost: "):
        put_whole(tmp_path / "file" / "inside.txt", "x", refused)


def test_a_writer_that_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    """Whatever is raised on the way, also what is no OSError: the old file stands and the half one is gone."""
    place = tmp_path / "file.bin"
    place.write_bytes(b"old")

    def write_half() -> None:
        with placed(place) as beside:
            beside.write_bytes(b"half")
            assert place.read_bytes() == b"old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert place.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
