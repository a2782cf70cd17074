"""Parts of a snapshot that are read side by side, each with a time of its own; what could not be read is named."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from kctl.admin.doctor.snapshot import Unseen
from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, KctlError

_PERMISSIONS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "needs Describe (for properties DescribeConfigs) on the cluster: "
    "'kctl acls add --allow-principal User:NAME --cluster --operation describe'",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "needs Describe and DescribeConfigs on the topics",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "needs Describe on the groups",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "needs Describe on the transactional ids",
}
T = TypeVar("T")


@dataclass(slots=True)
class Parts:
    """Reads parts of the state, and collects what could not be read."""

    part_s: float
    unseen: list[Unseen] = field(default_factory=list)

    async def read(self, what: str, work: Awaitable[T], default: T, limit_s: float | None = None) -> T:
        """Return the result, or `default` with an entry in `unseen`."""
        try:
            async with asyncio.timeout(limit_s or self.part_s):
                return await work
        except TimeoutError:
            self.note(what, f"no response within {limit_s or self.part_s:.0f} s")
        except KctlError as error:
            self.note_error(what, error)
        return default

    def note(self, what: str, reason: str, remedy: str = "") -> None:
        """Add an entry, once."""
        entry = Unseen(what=what, reason=reason, remedy=remedy)
        if entry not in self.unseen:
            self.unseen.append(entry)

    def note_error(self, what: str, error: KctlError) -> None:
        """Add an entry with the missing permission, if it is one."""
        code = error.code if isinstance(error, ApiError) else ErrorCode.NONE
        if code is not ErrorCode.UNSUPPORTED_VERSION:  # Older brokers do not have everything.
            self.note(what, str(error), _PERMISSIONS.get(code, ""))

    def note_outcomes(self, what: str, failed: Collection[Outcome]) -> None:
        """Add an entry for each kind of error of several brokers or items."""
        names: dict[tuple[ErrorCode, str], list[str]] = defaultdict(list)
        for outcome in failed:
            if outcome.error is not ErrorCode.UNSUPPORTED_VERSION:
                names[outcome.error, outcome.message].append(outcome.name)
        for (code, message), of in names.items():
            self.note(f"{what} {', '.join(of[:5])}", message or code.name, _PERMISSIONS.get(code, ""))
