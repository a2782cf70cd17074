"""Runs a scenario: a text in which each line is an event or an expectation, and # begins a comment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from kctl.model import TopicPartition


class ScenarioFailed(AssertionError):
    """The line of the scenario that does not hold, and the actual state."""


class Script(ABC):
    """A line `command words...` calls the method `_command` with the list of words."""

    def run(self, text: str) -> None:
        """Raises ScenarioFailed at the first line that does not hold."""
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            command: Callable[[list[str]], None] = getattr(self, f"_{words[0]}")
            try:
                command(words[1:])
            except ScenarioFailed as failure:
                raise ScenarioFailed(f"line {number}: {line.strip()}\n{failure}") from None
            self._collect()
        self._expect(["nothing"])

    @abstractmethod
    def _collect(self) -> None:
        """Takes the responses that the line has caused."""

    @abstractmethod
    def _expect(self, words: list[str]) -> None:
        """Raises ScenarioFailed unless the state is as the words describe it."""


def partition_of(text: str) -> TopicPartition:
    """The partition of `TOPIC-NUMBER`."""
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


def expect_words(words: list[str], text: str) -> None:
    """Raises ScenarioFailed unless all words are in the text."""
    expect_that(set(words) <= set(text.split()), f"it is: {text}")


def expect_that(condition: bool, message: str) -> None:
    """Raises ScenarioFailed with the message if the condition is false."""
    if not condition:
        raise ScenarioFailed(message)
