"""How many examples property tests try, and random seeds simulations: an eighth of what they state.

KCTL_EXAMPLES=10 tries ten times their numbers, where more time is at hand.
"""

from __future__ import annotations

import os

from hypothesis import settings

SHARE = float(os.environ.get("KCTL_EXAMPLES", "0.125"))


def share_of(count: int) -> int:
    """The number of examples to try of so many."""
    return max(1, int(count * SHARE))


def examples(count: int) -> settings:
    """For tests that need another number than the default of Hypothesis."""
    return settings(max_examples=share_of(count))
