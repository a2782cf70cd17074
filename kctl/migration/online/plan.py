"""The document of a migration without a stop: the two clusters, what is copied, and what the source had.  Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

from kctl.admin.state.document import DesiredState, format_state, parse_state
from kctl.errors import UsageError

_KIND, _VERSION = "kctl-migrate-copy", 1


@dataclass(frozen=True, slots=True)
class Selection:
    """Names by patterns, in which * is any text and ? any character; those that are excluded take precedence."""

    patterns: Sequence[str] = ("*",)
    excluded: Sequence[str] = ()

    def has(self, name: str) -> bool:
        """Return whether the name is selected."""
        return _matches(name, self.patterns) and not _matches(name, self.excluded)


@dataclass(frozen=True, slots=True)
class OnlinePlan:
    """A migration from one cluster to another."""

    source_servers: str
    target_servers: str
    source_cluster: str
    target_cluster: str
    topics: Selection
    groups: Selection
    state: DesiredState = field(default_factory=DesiredState)
    """Settings of the source when the plan was made: what it has no more is removed from the target."""


def format_plan(plan: OnlinePlan) -> str:
    """Return the document, with a digest of its contents."""
    fields = {
        "kind": _KIND,
        "version": _VERSION,
        "source": {"bootstrap": plan.source_servers, "cluster": plan.source_cluster},
        "target": {"bootstrap": plan.target_servers, "cluster": plan.target_cluster},
        "topics": {"names": list(plan.topics.patterns), "excluded": list(plan.topics.excluded)},
        "groups": {"names": list(plan.groups.patterns), "excluded": list(plan.groups.excluded)},
        "state": _texts(format_state(plan.state)),
    }
    return json.dumps({**fields, "digest": _digest(fields)}, indent=1) + "\n"


def parse_plan(document: Any, path: str) -> OnlinePlan:
    """Return the plan.  Raises UsageError for a document of another kind, and for one that was changed."""
    if not isinstance(document, dict) or document.get("kind") != _KIND or document.get("version") != _VERSION:
        raise UsageError(f"{path} is not a document of 'kctl migrate copy-plan' of this version")
    digest = document.pop("digest", None)
    if digest != _digest(document):
        raise UsageError(f"{path} is incomplete or was changed: make a new plan with the options that you need")
    return OnlinePlan(
        document["source"]["bootstrap"],
        document["target"]["bootstrap"],
        document["source"]["cluster"],
        document["target"]["cluster"],
        Selection(tuple(document["topics"]["names"]), tuple(document["topics"]["excluded"])),
        Selection(tuple(document["groups"]["names"]), tuple(document["groups"]["excluded"])),
        parse_state(document["state"], path),
    )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _digest(fields: dict[str, Any]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _texts(value: Any) -> Any:
    """Return the document with its numbers as text, as `parse_state` reads them."""
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None else str(value)
