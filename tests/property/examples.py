"""How many examples property tests try: an eighth of them in `./dev test --fast`."""

from __future__ import annotations

import os

from hypothesis import settings

SHARE = 8 if "KCTL_FAST_TESTS" in os.environ else 1


def examples(count: int) -> settings:
    """For tests that need another number than the default of Hypothesis."""
    return settings(max_examples=count // SHARE)
