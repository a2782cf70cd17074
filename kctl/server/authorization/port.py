"""The interface of an authorizer.  Kafka: org.apache.kafka.server.authorizer.Authorizer (KIP-504).

A plug-in is a callable in the entry point group `kctl.authorizers` that takes the broker's properties as a mapping of
text and returns an object with these methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from kctl.security.acls import AclBinding, AclFilter, Operation, ResourceType
from kctl.security.authorization import Client, Decision, Granted
from kctl.server.requests.outcomes import Outcome


class Authorizer(Protocol):
    """Decides on requests, and manages ACLs.  All methods are called on the event loop and must not block it."""

    async def start(self) -> None:
        """Called once before the broker accepts connections; whatever it raises stops the broker."""

    async def close(self) -> None:
        """Called once when the broker stops."""

    def authorize(self, client: Client, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """Whether the client may perform the operation on one resource."""
        ...

    def authorize_on_any(self, client: Client, operation: Operation, kind: ResourceType) -> Decision:
        """Whether the client may perform the operation on at least one resource of the type (KIP-679)."""
        ...

    def acls(self) -> Iterable[AclBinding]:
        """All ACLs, for DescribeAcls.  They may change while the caller iterates, as other requests are served."""
        ...

    async def create(self, bindings: Sequence[AclBinding]) -> list[Outcome]:
        """Stores ACLs; one result for each, in order.  One that exists already succeeds."""
        ...

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[tuple[AclBinding, Outcome]]]:
        """Deletes the ACLs that the filters select; for each filter those of them that no earlier filter selects."""
        ...


@runtime_checkable
class CachedAuthorizer(Authorizer, Protocol):
    """An authorizer whose decisions hold until it clears `granted`: it is not asked again about what is in there.

    Access adds what is allowed.  The authorizer clears it when a decision may have changed, and when there are many.
    """

    granted: Granted
