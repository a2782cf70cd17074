"""The result of a command line, for tests that compare what it prints."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """The result of a command line."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """stdout as tab-separated cells."""
        return [line.split("\t") for line in self.out.splitlines()]
