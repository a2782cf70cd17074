"""Confirmations of dry runs: a change is made only after a dry run with the same arguments, and once."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping

from kctl.errors import UsageError

LIFETIME_S = 600
PENDING_MAX = 100


class Confirmations:
    """The dry runs whose change may still be made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pending: dict[str, tuple[str, float]] = {}

    def issue(self, tool: str, arguments: Mapping[str, object]) -> str:
        """A confirmation for the change of a dry run; if there are too many, the oldest one becomes invalid."""
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]
        token = secrets.token_urlsafe(16)
        self._pending[token] = (_call(tool, arguments), self._clock() + LIFETIME_S)
        return token

    def redeem(self, token: object, tool: str, arguments: Mapping[str, object]) -> None:
        """Raises UsageError unless the token is that of this call, not used and not too old."""
        call, valid_until_s = self._pending.get(token if isinstance(token, str) else "", ("", 0.0))
        if call != _call(tool, arguments):
            raise UsageError(
                "the confirmation is not that of a dry run with the same arguments, or was used already;"
                " call without it for a dry run"
            )
        del self._pending[str(token)]
        if self._clock() > valid_until_s:
            raise UsageError(f"the confirmation is older than {LIFETIME_S} seconds; call without it for a dry run")


def _call(tool: str, arguments: Mapping[str, object]) -> str:
    return json.dumps([tool, arguments], sort_keys=True)
