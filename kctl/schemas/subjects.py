"""Names of subjects and their contexts: `:.CONTEXT:SUBJECT`, or `SUBJECT` in the default context.  Pure."""

from __future__ import annotations

from typing import NamedTuple

from kctl.limits import Subject, bound

DEFAULT_CONTEXT = "."
GLOBAL_SETTINGS = ":.__GLOBAL:"
"""The settings of all contexts that have none of their own."""
ALL_CONTEXTS = ":*:"

SUBJECT_CHARACTERS_MAX = bound(
    Subject.SCHEMA_REGISTRY,
    "the name of a subject, with its context",
    1_000,
    "characters",
    on_excess="error 42208",
)


class SubjectName(NamedTuple):
    """A subject, or with an empty `subject` the settings of a context."""

    context: str
    """With its leading point."""
    subject: str

    @property
    def text(self) -> str:
        """The name as it is stored and shown."""
        return self.subject if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.subject}"

    @property
    def context_text(self) -> str:
        """The key of the settings of the context; empty for the default context."""
        return "" if self.context == DEFAULT_CONTEXT else f":{self.context}:"


def subject_name(text: str) -> SubjectName:
    """Return the parts of a name."""
    if not text.startswith(":."):
        return SubjectName(DEFAULT_CONTEXT, text)
    context, _, subject = text[1:].partition(":")
    return SubjectName(context, subject)


def normalized(text: str) -> str:
    """Return a name without the default context: `:.:a` is `a`."""
    return subject_name(text).text


def within(parent: str, reference: str) -> str:
    """Return the subject of a reference, which without a context is in that of the schema that has it."""
    return reference if reference.startswith(":.") else SubjectName(subject_name(parent).context, reference).text


def is_valid(text: str, *, for_settings: bool = False) -> bool:
    """Return whether a subject can have the name, or with `for_settings` a subject or context."""
    name = subject_name(text)
    if len(text) > SUBJECT_CHARACTERS_MAX or not text.isprintable():
        return False
    return (bool(name.subject) and name.subject not in {"__GLOBAL", "__EMPTY"}) or (for_settings and bool(text))


def matches_prefix(text: str, prefix: str) -> bool:
    """Return whether a subject begins with a prefix, which is of one context or, with `:*:`, of all."""
    name = subject_name(text)
    if prefix.startswith(ALL_CONTEXTS):
        return name.subject.startswith(prefix.removeprefix(ALL_CONTEXTS))
    wanted = subject_name(prefix)
    return name.context == wanted.context and name.subject.startswith(wanted.subject)
