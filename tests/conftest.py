"""One setting for all tests: drawn examples are the same in every run, so that a red test is a change's and not a draw's.

`HYPOTHESIS_PROFILE=default` draws anew each time: worth a run of its own after a change.
"""

from __future__ import annotations

import os
from contextlib import suppress

with suppress(ImportError):  # the chart's tests have an environment without it
    from hypothesis import settings

    settings.register_profile("same", derandomize=True)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
