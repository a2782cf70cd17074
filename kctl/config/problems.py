"""Problems of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.errors import ConfigError, shown_value


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid property.  `reason` and `remedy` are sentences without a full stop."""

    name: str
    value: str | None
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = self.name if self.value is None else f"{self.name}={shown_value(self.value)}"
        return f"{shown}: {self.reason}; {self.remedy}"


class BrokerConfigError(ConfigError):
    """An invalid broker configuration; the text has one line per problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.name, first.value, first.reason)
        self.args = ("\n".join(str(problem) for problem in problems),)
        self.problems = tuple(problems)
