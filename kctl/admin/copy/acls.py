"""The ACLs of topics for their copies: those with the names, and those with prefixes of the names.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kctl.security.acls import WILDCARD, AclBinding, AclFilter, PatternType, ResourceType

OF_TOPICS = AclFilter(resource_type=ResourceType.TOPIC)
CREATED_AT_ONCE = 200
"""ACLs in one CreateAcls request."""


def acls_of_copies(
    bindings: Iterable[AclBinding], topics: Collection[str], prefix: str
) -> dict[AclBinding, tuple[str, ...]]:
    """Return the ACLs for the copies, whose names begin with `prefix`, and the topics that each applies to.

    ACLs of all topics (`*`) are of the cluster, and are left out.
    """
    copied: dict[AclBinding, tuple[str, ...]] = {}
    for binding in sorted(bindings):
        pattern = binding.pattern
        is_of_all = pattern.pattern_type is PatternType.LITERAL and pattern.name == WILDCARD
        if pattern.type is not ResourceType.TOPIC or is_of_all:
            continue
        if applies_to := tuple(sorted(name for name in topics if pattern.applies_to(name))):
            renamed = pattern._replace(name=prefix + pattern.name)
            copied[binding._replace(pattern=renamed)] = applies_to
    return copied
