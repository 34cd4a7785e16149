"""``python3 unzip.py SITE_DIR WHEEL…``: many wheels into one folder, quicker than pip on many cores."""

import os
import shutil
import sys
import zipfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path


def unzip(site: Path, wheel: Path) -> Path:
    """One wheel's files into `site`; directories may be shared between wheels."""
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            path = site / info.filename
            if info.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
    return wheel


def main() -> None:
    """Largest wheels first, so that the last one to end is a small one."""
    site, *wheels = (Path(word) for word in sys.argv[1:])
    wheels.sort(key=lambda wheel: wheel.stat().st_size, reverse=True)
    with ProcessPoolExecutor(min(24, os.cpu_count() or 2)) as pool:
        print(len(list(pool.map(partial(unzip, site), wheels))), "wheels into", site)


if __name__ == "__main__":
    main()
