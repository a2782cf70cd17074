"""What is wrong with a configuration, all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One property that cannot stay as it is.  `reason` and `remedy` are sentences without a full stop."""

    name: str
    value: str | None
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = self.name if self.value is None else f"{self.name}={self.value}"
        return f"{shown}: {self.reason}; {self.remedy}"


class BrokerConfigError(ConfigError):
    """A configuration that a broker cannot start with; its text has one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.name, first.value, first.reason)
        self.args = ("\n".join(str(problem) for problem in problems),)
        self.problems = tuple(problems)
