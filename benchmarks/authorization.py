"""Measures the time of a decision on a produce request, cached and not, with many ACLs.

    python -m benchmarks.authorization

Prints microseconds per decision: as handlers call it, cached and not, and without an authorizer.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import cast

from kctl.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.authorization import AccessPolicy, AclIndex, Client, decide
from kctl.server.loop.tasks import SystemClock
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.security.authorization.access import Access
from kctl.server.security.authorization.zookeeper_acls import ZooKeeperAcls
from kctl.zookeeper.operations import ZooKeeper

ROUNDS = 100_000
ACLS = 10_000


def main() -> None:
    entry = AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
    patterns = [ResourcePattern(ResourceType.TOPIC, f"topic-{number}") for number in range(ACLS // 2)]
    patterns += [
        ResourcePattern(ResourceType.TOPIC, f"team-{number}.", PatternType.PREFIXED) for number in range(ACLS // 2)
    ]
    index = AclIndex(AclBinding(pattern, entry) for pattern in patterns)
    # Decisions read the cache only.
    authorizer = ZooKeeperAcls(cast("ZooKeeper", None), AccessPolicy(), SystemClock())
    vars(authorizer)["_index"] = index
    peer = Peer("/127.0.0.1", "PLAINTEXT", "User:alice")
    secured = RequestContext(9, 1, "client", peer, Access(authorizer), "produce")
    unsecured = RequestContext(9, 1, "client", peer, api_name="produce")
    client, policy = Client("User:alice", "127.0.0.1"), AccessPolicy()
    report("cached, as called by a handler", lambda: secured.allows(Operation.WRITE, ResourceType.TOPIC, "topic-77"))
    report(
        f"not cached, {ACLS} ACLs",
        lambda: decide(index, policy, client, Operation.WRITE, ResourceType.TOPIC, "team-77.orders"),
    )
    report("without an authorizer", lambda: unsecured.allows(Operation.WRITE, ResourceType.TOPIC, "topic-77"))


def report(name: str, send_requests: Callable[[], object]) -> None:
    """The best of five runs, which a busy machine disturbs least."""
    best = min(_seconds(send_requests) for _ in range(5))
    sys.stdout.write(f"{name:32} {best / ROUNDS * 1e6:6.2f} us\n")


def _seconds(send_requests: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(ROUNDS):
        send_requests()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
