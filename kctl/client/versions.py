"""Which version of each API to speak with one broker.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kctl.errors import ApiError, ErrorCode
from kctl.protocol.message import definition_of


class BrokerVersions:
    """The versions that a broker advertised, by API key."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._ranges = dict(ranges)

    def knows(self, request_class: type) -> bool:
        """Whether the broker has this API at all, in whichever version."""
        return definition_of(request_class).key in self._ranges

    def highest(self, request_class: type) -> int:
        """The newest version both sides know.  Raises ApiError(UNSUPPORTED_VERSION)."""
        definition = definition_of(request_class)
        assert definition.key is not None
        ours = definition.versions
        name = definition.name.removesuffix("Request")
        lowest, highest = self._ranges.get(definition.key, (0, -1))
        version = min(highest, ours[-1])
        if highest < 0:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker does not know {name}")
        if version < max(lowest, ours[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name}: the broker speaks versions {lowest} to {highest}, kctl {ours[0]} to {ours[-1]}",
            )
        return version

    def items(self) -> list[tuple[int, tuple[int, int]]]:
        """All that was advertised, in order of the keys."""
        return sorted(self._ranges.items())
