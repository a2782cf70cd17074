"""What calls of the administration client return for several items.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Self, TypeVar

from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode

K = TypeVar("K")
T = TypeVar("T")

MISSING = "the response of the broker does not contain this item"


class Results(dict[K, T | ApiError]):
    """The value or the error of each item, in the order of the call."""

    @property
    def errors(self) -> dict[K, ApiError]:
        """The items that have failed."""
        return {item: result for item, result in self.items() if isinstance(result, ApiError)}

    def require(self) -> dict[K, T]:
        """Return the values, if no item has failed.  Raises the first error."""
        values: dict[K, T] = {}
        for item, result in self.items():
            if isinstance(result, ApiError):
                raise ApiError(result.code, str(result))
            values[item] = result
        return values

    @classmethod
    def of(cls, items: Iterable[K], results: Mapping[K, T | ApiError]) -> Self:
        """Return the results of the items; an error for those that the broker has not returned."""
        return cls(
            {
                item: named(item, results[item])
                if item in results
                else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{item}: {MISSING}")
                for item in items
            }
        )


def error_of(outcome: Outcome, item: object) -> ApiError | None:
    """Return the error of an item; None if it has succeeded."""
    return None if outcome.is_done else ApiError(outcome.error, f"{item}: {outcome.message}")


def named(item: object, result: T | ApiError) -> T | ApiError:
    """Return the result; an error begins with the item."""
    if isinstance(result, ApiError) and not str(result).startswith(str(item)):
        return ApiError(result.code, f"{item}: {result}")
    return result


def error_or(outcome: Outcome, value: T) -> T | ApiError:
    """Return the value of an item, or its error."""
    return error_of(outcome, outcome.name) or value


def results_of(items: Collection[K], outcomes: Mapping[K, Outcome]) -> Results[K, None]:
    """Return the results of items without values; an error for those that the broker has not returned."""
    found = {item: outcomes.get(item) or Outcome(str(item), ErrorCode.UNKNOWN_SERVER_ERROR, MISSING) for item in items}
    return Results({item: error_of(outcome, outcome.name) for item, outcome in found.items()})
