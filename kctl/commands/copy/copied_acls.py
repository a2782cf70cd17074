"""Copies the ACLs of topics to the cluster of their copies; none is removed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.copy.acls import CREATED_AT_ONCE, OF_TOPICS, acls_of_copies
from kctl.admin.security.acls import create_acls, list_acls
from kctl.commands.acls.rules import AclChangeRow, change_row

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kctl.client.cluster import ClusterClient
    from kctl.security.acls import AclBinding


class CopiedAcls(NamedTuple):
    """The ACLs for the copies."""

    topics: Mapping[AclBinding, tuple[str, ...]]
    """The topics of the source that each applies to."""
    present: frozenset[AclBinding]
    """Those that the target has already."""

    async def create(self, target: ClusterClient, *, is_dry_run: bool) -> dict[AclBinding, AclChangeRow]:
        """Create those that are missing, unless it is a dry run; return a row for each.  Raises KctlError."""
        rows = {acl: change_row(acl, "present") for acl in self.topics}
        missing = [acl for acl in self.topics if acl not in self.present]
        for first in range(0, len(missing), CREATED_AT_ONCE):
            some = missing[first : first + CREATED_AT_ONCE]
            if is_dry_run:
                rows.update((acl, change_row(acl, "would be created")) for acl in some)
                continue
            outcomes = await create_acls(target, some)
            rows.update((acl, change_row(acl, "created", outcome)) for acl, outcome in zip(some, outcomes, strict=True))
        return rows


async def read_acls(source: ClusterClient, target: ClusterClient, topics: Collection[str], prefix: str) -> CopiedAcls:
    """Read the ACLs of both clusters.  Raises ApiError: SECURITY_DISABLED if one has no authorizer."""
    copied = acls_of_copies(await list_acls(source, [OF_TOPICS]), topics, prefix)
    return CopiedAcls(copied, frozenset(await list_acls(target, [OF_TOPICS])))
