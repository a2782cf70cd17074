"""What calls of the administration client return for several items, and the checks of their arguments.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from kctl.client.outcome import Outcome
from kctl.errors import ApiError, ErrorCode, UsageError
from kctl.limits import Subject, bound
from kctl.model import INT32_MAX, TopicPartition

K = TypeVar("K")
T = TypeVar("T")

ITEMS_MAX = bound(
    Subject.COMMANDS,
    "items of one call of AdminClient",
    100_000,
    "items",
    on_excess="UsageError, before a request is sent",
)


class Results(dict[K, T | ApiError]):
    """The value or the error of each item, in the order of the call."""

    @property
    def errors(self) -> dict[K, ApiError]:
        """The items that have failed."""
        return {item: result for item, result in self.items() if isinstance(result, ApiError)}

    def require(self) -> dict[K, T]:
        """The values, if no item has failed.  Raises the first error."""
        values: dict[K, T] = {}
        for item, result in self.items():
            if isinstance(result, ApiError):
                raise ApiError(result.code, str(result))
            values[item] = result
        return values

    @classmethod
    def of(cls, items: Iterable[K], results: Mapping[K, T | ApiError]) -> Self:
        """The results of the items; an error for those that the broker has not returned."""
        missing = "the response of the broker does not contain this item"
        return cls(
            {
                item: named(item, results[item])
                if item in results
                else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{item}: {missing}")
                for item in items
            }
        )

    @classmethod
    def of_outcomes(cls, outcomes: Mapping[K, Outcome]) -> Results[K, None]:
        """The results of items without values."""
        return Results({item: error_of(outcome, item) for item, outcome in outcomes.items()})


def error_of(outcome: Outcome, item: object) -> ApiError | None:
    """The error of an item; None if it has succeeded."""
    return None if outcome.is_done else ApiError(outcome.error, f"{item}: {outcome.message}")


def named(item: object, result: T | ApiError) -> T | ApiError:
    """The result; an error begins with the item."""
    if isinstance(result, ApiError) and not str(result).startswith(str(item)):
        return ApiError(result.code, f"{item}: {result}")
    return result


# Checks of arguments: each raises UsageError, which names the argument.


def checked_items(argument: str, items: Any, kind: type[T]) -> list[T]:
    """The items, each of which is of this type."""
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Collection):
        raise UsageError(f"{argument} must be a list of {kind.__name__}, not {_shown(items)}")
    check_count(argument, items)
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise UsageError(f"{argument}[{index}] must be a {kind.__name__}, not {_shown(item)}")
    return list(items)


def checked_names(argument: str, names: Any) -> list[str]:
    """The names, each once."""
    found = checked_items(argument, names, str)
    for index, name in enumerate(found):
        check_name(f"{argument}[{index}]", name)
    return list(dict.fromkeys(found))


def check_name(argument: str, name: Any) -> None:
    """A text that is not empty, and that a request can contain."""
    if not isinstance(name, str):
        raise UsageError(f"{argument} must be a str, not {_shown(name)}")
    if not name:
        raise UsageError(f"{argument} is empty")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{argument} has no encoding in UTF-8: {error.reason}") from None


def checked_mapping(argument: str, mapping: Any, kind: type[K]) -> dict[K, Any]:
    """The mapping, whose keys are of this type."""
    if not isinstance(mapping, Mapping):
        raise UsageError(f"{argument} must be a dict by {kind.__name__}, not {_shown(mapping)}")
    return {key: mapping[key] for key in checked_items(argument, list(mapping), kind)}


def checked_partitions(argument: str, partitions: Any) -> list[TopicPartition]:
    """The partitions, each once."""
    found = checked_items(argument, partitions, TopicPartition)
    for index, tp in enumerate(found):
        check_name(f"{argument}[{index}].topic", tp.topic)
        check_number(f"{argument}[{index}].partition", tp.partition, low=0, high=INT32_MAX)
    return list(dict.fromkeys(found))


def checked_by_partition(argument: str, mapping: Any) -> dict[TopicPartition, Any]:
    """The values by partition."""
    found = checked_mapping(argument, mapping, TopicPartition)
    checked_partitions(argument, list(found))
    return found


def check_number(argument: str, number: Any, *, low: int, high: int) -> None:
    """An int in the range."""
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise UsageError(f"{argument} must be an int from {low} to {high}, not {_shown(number)}")


def check_count(argument: str, items: Collection[object]) -> None:
    """At most ITEMS_MAX."""
    if len(items) > ITEMS_MAX:
        raise UsageError(f"{argument} has {len(items):,} items; the maximum of a call is {ITEMS_MAX:,}")


def checked_replicas(argument: str, replicas: Any) -> tuple[int, ...]:
    """The ids of the brokers of one partition."""
    if isinstance(replicas, (str, bytes)) or not isinstance(replicas, Sequence) or not replicas:
        raise UsageError(f"{argument} must be a list of broker ids, not {_shown(replicas)}")
    for index, replica in enumerate(replicas):
        check_number(f"{argument}[{index}]", replica, low=0, high=INT32_MAX)
    return tuple(replicas)


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, (int, float, str)) else ""
    return f"{type(value).__name__} {text}".strip() if len(text) <= 40 else type(value).__name__
