"""What the rules of a registry need of a schema, whatever its format.  Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from kctl.limits import Subject, bound

COMPARISONS_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "comparisons of parts of two schemas",
    10_000,
    "comparisons",
    on_excess="error 42201",
)
NESTING_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "levels of a schema, and of the JSON of a request",
    100,
    "levels",
    on_excess="error 42201",
)


READER, WRITER = "\0reader", "\0writer"
"""Place holders in a description; names in a schema cannot contain them."""


class InvalidSchema(ValueError):
    """A text that is not a schema of its type; the text says why."""


class ParsedSchema(NamedTuple):
    """A schema."""

    type: str
    text: str
    """As it is stored: equal texts of one author become equal, without spaces and comments."""
    model: Any
    """For the comparison, of a type of its own for each format."""


class Difference(NamedTuple):
    """A change that the reader of old data does not tolerate."""

    kind: str
    """As Confluent names it: READER_FIELD_MISSING_DEFAULT_VALUE."""
    description: str
    """With READER and WRITER for `new` or `old`."""
    detail: str | None = None

    def text(self, reader: str, writer: str) -> str:
        """Return the message in the form of Confluent's."""
        description = self.description.replace(READER, reader).replace(WRITER, writer)
        if self.detail is None:
            return f'{{errorType:"{self.kind}", description:"{description}"}}'
        return f"{{errorType:'{self.kind}', description:'{description}', additionalInfo:'{self.detail}'}}"


class Budget:
    """Counts the comparisons of two schemas, whose number can grow exponentially with their size."""

    def __init__(self) -> None:
        self._left = COMPARISONS_MAX

    def spend(self, count: int = 1) -> None:
        """Count comparisons.  Raises InvalidSchema."""
        self._left -= count
        if self._left < 0:
            raise InvalidSchema(f"comparing it with another version takes more than {COMPARISONS_MAX:,} steps")
