"""The operations behind the commands: async functions that take a client and return dataclasses.

Applications import the names in `__all__` from here (docs/client-operations.md); they are loaded when they are used.

Packages by subject, from the bottom: security; topics; placement (of replicas: plans, reassignments, throttles,
elections); groups (lag, offsets, history); cluster (health, features, restarts); records (conditions, deletion);
copy and perf; sampling (`kctl top`); state (`kctl plan` and `apply`); client (for applications).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.admin.client.async_client import AsyncAdminClient, ClusterDescription
    from kctl.admin.client.blocking_client import AdminClient
    from kctl.admin.client.results import Results
    from kctl.admin.client.settings import AdminConfig
    from kctl.admin.groups.groups import ListedGroup
    from kctl.admin.placement.election import Election, ElectionType
    from kctl.admin.placement.reassignment import Ongoing
    from kctl.admin.security.quotas import EntityQuotas, FilterPart, QuotaChange
    from kctl.admin.security.users import NewPassword
    from kctl.admin.topics.configs import ConfigChange, ConfigEntry, ConfigOperation, ConfigResource, ResourceType
    from kctl.admin.topics.topics import CreatedTopic, NewTopic
    from kctl.client.consuming.committed_offsets import CommittedOffset
    from kctl.client.consuming.list_offsets import OffsetAt
    from kctl.client.metadata import Topic
    from kctl.lag.facts import GroupDescription
    from kctl.model import TopicPartition
    from kctl.security.acls import AclBinding, AclEntry, AclFilter, Operation, PatternType, Permission, ResourcePattern
    from kctl.security.acls import ResourceType as AclResourceType
    from kctl.security.quotas import EntityType
    from kctl.security.scram import Mechanism

__all__ = [
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "AclResourceType",
    "AdminClient",
    "AdminConfig",
    "AsyncAdminClient",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigResource",
    "CreatedTopic",
    "Election",
    "ElectionType",
    "EntityQuotas",
    "EntityType",
    "FilterPart",
    "GroupDescription",
    "ListedGroup",
    "Mechanism",
    "NewPassword",
    "NewTopic",
    "OffsetAt",
    "Ongoing",
    "Operation",
    "PatternType",
    "Permission",
    "QuotaChange",
    "ResourcePattern",
    "ResourceType",
    "Results",
    "Topic",
    "TopicPartition",
]

_MODULES = {
    "AclBinding": ("kctl.security.acls", "AclBinding"),
    "AclEntry": ("kctl.security.acls", "AclEntry"),
    "AclFilter": ("kctl.security.acls", "AclFilter"),
    "AclResourceType": ("kctl.security.acls", "ResourceType"),
    "AdminClient": ("kctl.admin.client.blocking_client", "AdminClient"),
    "AdminConfig": ("kctl.admin.client.settings", "AdminConfig"),
    "AsyncAdminClient": ("kctl.admin.client.async_client", "AsyncAdminClient"),
    "ClusterDescription": ("kctl.admin.client.async_client", "ClusterDescription"),
    "CommittedOffset": ("kctl.client.consuming.committed_offsets", "CommittedOffset"),
    "ConfigChange": ("kctl.admin.topics.configs", "ConfigChange"),
    "ConfigEntry": ("kctl.admin.topics.configs", "ConfigEntry"),
    "ConfigOperation": ("kctl.admin.topics.configs", "ConfigOperation"),
    "ConfigResource": ("kctl.admin.topics.configs", "ConfigResource"),
    "CreatedTopic": ("kctl.admin.topics.topics", "CreatedTopic"),
    "Election": ("kctl.admin.placement.election", "Election"),
    "ElectionType": ("kctl.admin.placement.election", "ElectionType"),
    "EntityQuotas": ("kctl.admin.security.quotas", "EntityQuotas"),
    "EntityType": ("kctl.security.quotas", "EntityType"),
    "FilterPart": ("kctl.admin.security.quotas", "FilterPart"),
    "GroupDescription": ("kctl.lag.facts", "GroupDescription"),
    "ListedGroup": ("kctl.admin.groups.groups", "ListedGroup"),
    "Mechanism": ("kctl.security.scram", "Mechanism"),
    "NewPassword": ("kctl.admin.security.users", "NewPassword"),
    "NewTopic": ("kctl.admin.topics.topics", "NewTopic"),
    "OffsetAt": ("kctl.client.consuming.list_offsets", "OffsetAt"),
    "Ongoing": ("kctl.admin.placement.reassignment", "Ongoing"),
    "Operation": ("kctl.security.acls", "Operation"),
    "PatternType": ("kctl.security.acls", "PatternType"),
    "Permission": ("kctl.security.acls", "Permission"),
    "QuotaChange": ("kctl.admin.security.quotas", "QuotaChange"),
    "ResourcePattern": ("kctl.security.acls", "ResourcePattern"),
    "ResourceType": ("kctl.admin.topics.configs", "ResourceType"),
    "Results": ("kctl.admin.client.results", "Results"),
    "Topic": ("kctl.client.metadata", "Topic"),
    "TopicPartition": ("kctl.model", "TopicPartition"),
}
"""The module and the name in it of each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only applications need it

    module, attribute = _MODULES[name]
    return getattr(import_module(module), attribute)
