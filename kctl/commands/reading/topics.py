"""The topics that `kctl consume` and `kctl copy` read: names, names with wildcards, or a regular expression."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kctl.admin.topics.topics import list_topics
from kctl.commands.reading.searches import NamePattern
from kctl.errors import KctlError, UsageError
from kctl.output.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kctl.client.cluster import ClusterClient

NAMES_SHOWN = 10
"""Names in one message."""
_WILDCARDS = {"*": ".*", "?": "."}
_NAME_OR_PATTERN = re.compile(r"[A-Za-z0-9._*?-]+")

TopicRegex = Annotated[
    str | None,
    typer.Option(
        "--topic-regex",
        metavar="RE",
        help="Instead of TOPIC: all topics whose name matches this regular expression as a whole, except internal.",
    ),
]


class TopicSelection(NamedTuple):
    """The topics of a command line."""

    names: tuple[str, ...]
    """Topics that are named in full."""
    pattern: NamePattern | None = None
    """Further topics, unless they are internal; None for none."""
    text: str = ""
    """The pattern as it was given, for messages."""

    @property
    def has_several(self) -> bool:
        """Whether more than one topic can be selected; a pattern that matches one topic is still a pattern."""
        return self.pattern is not None or len(self.names) > 1

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return those of the names, none of which is of an internal topic, that the pattern matches."""
        return [] if self.pattern is None else self.pattern.select(names)

    async def look_up(self, client: ClusterClient) -> list[str]:
        """Return the names of the topics, sorted; those that are named in full may not exist."""
        if self.pattern is None:
            return sorted(self.names)
        topics = await list_topics(client)
        return sorted({*self.names, *self.matching(topic.name for topic in topics if not topic.is_internal)})

    def no_match(self) -> KctlError:
        """Return the error for a pattern that matches no topic."""
        return KctlError(f"no topic matches {self.text}; internal topics are read only if they are named in full")


def topic_selection(ctx: typer.Context, arguments: Sequence[str] | None, regex: str | None) -> TopicSelection:
    """Return the selection of the arguments, in which * and ? are wildcards, or of --topic-regex.

    Raises UsageError, and that of typer for a word after the first that is not a topic.
    """
    if bool(arguments) == (regex is not None):
        raise UsageError("give topics or --topic-regex")
    if regex is not None:
        return TopicSelection((), NamePattern("--topic-regex", regex), f"--topic-regex '{regex}'")
    names = tuple(dict.fromkeys(arguments or ()))
    for name in names:
        if _NAME_OR_PATTERN.fullmatch(name):
            continue
        if name is not names[0]:
            ctx.fail(f"got unexpected extra argument ({name})")
        raise UsageError(f"'{name}' is not the name of a topic; --topic-regex takes a regular expression")
    globs = [name for name in names if not _WILDCARDS.keys().isdisjoint(name)]
    if not globs:
        return TopicSelection(names)
    pattern = NamePattern("TOPIC", "|".join(map(_expression_of, globs)))
    named = tuple(name for name in names if name not in globs)
    return TopicSelection(named, pattern, " or ".join(f"'{glob}'" for glob in globs))


def _expression_of(glob: str) -> str:
    return "".join(_WILDCARDS.get(character) or re.escape(character) for character in glob)


def named_topics(topics: Sequence[str]) -> str:
    """Return the number of topics and the first names."""
    more = f" and {len(topics) - NAMES_SHOWN} more" if len(topics) > NAMES_SHOWN else ""
    return f"{counted(len(topics), 'topic')}: {', '.join(topics[:NAMES_SHOWN])}{more}"
