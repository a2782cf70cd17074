"""Brokers that share ACLs in a simulated ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from kctl.errors import ErrorCode
from kctl.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kctl.security.authorization import AccessPolicy, Client, Decision, Reason
from kctl.server.cluster.configs.loggers import set_logger
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.security.authorization.access import Access, Authorizer
from kctl.server.security.authorization.zookeeper_acls import ZooKeeperAcls
from kctl.testing.sim_loop import SimLoop, simulate
from kctl.testing.sim_zookeeper import SimZooKeeper, SimZooKeeperSession
from kctl.zookeeper import security_znodes
from kctl.zookeeper.operations import WatchEvent
from tests.rows import for_rows
from tests.unit.log_lines import written_lines

T = TypeVar("T")
TOPIC = ResourceType.TOPIC
ALICE = Client("User:alice", "127.0.0.1")
ALICE_PEER = Peer("/127.0.0.1", "PLAINTEXT", "User:alice")


def acl(name: str, operation: Operation = Operation.READ, shape: PatternType = PatternType.LITERAL) -> AclBinding:
    entry = AclEntry("User:alice", "*", operation, Permission.ALLOW)
    return AclBinding(ResourcePattern(TOPIC, name, shape), entry)


class WallClock:
    """Starts at 0, which is when all znodes of the simulated ensemble are created."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._start = loop.time()

    def now_ms(self) -> int:
        return int((self._loop.time() - self._start) * 1000)

    def monotonic_ms(self) -> int:
        return self.now_ms()


class Broker:
    """The ACLs of one broker and its session."""

    def __init__(self, ensemble: SimZooKeeper, clock: WallClock) -> None:
        self.session: SimZooKeeperSession = ensemble.session(on_watch=self._on_watch)
        self.acls = ZooKeeperAcls(self.session, AccessPolicy(), clock)

    async def start(self) -> None:
        await self.session.start(10_000)
        await self.acls.start()

    def allows(self, name: str, operation: Operation = Operation.READ) -> bool:
        return self.acls.authorize(ALICE, operation, TOPIC, name).is_allowed

    def _on_watch(self, event: WatchEvent) -> None:
        self.acls.on_watch(event)


def play(scene: Callable[[Broker, Broker], Awaitable[T]]) -> T:
    async def main(loop: SimLoop) -> T:
        ensemble, clock = SimZooKeeper(), WallClock(loop)
        brokers = Broker(ensemble, clock), Broker(ensemble, clock)
        for broker in brokers:
            await broker.start()
        try:
            return await scene(*brokers)
        finally:
            for broker in brokers:
                await broker.acls.close()
                await broker.session.close()

    return simulate(main, seed=1)


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_reached():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.01)


def test_other_brokers_receive_changes() -> None:
    async def scene(one: Broker, other: Broker) -> None:
        created = [acl("a"), acl("p", shape=PatternType.PREFIXED)]
        assert all(result.is_success for result in await one.acls.create(created))
        assert one.allows("a")
        assert one.allows("p1")
        await until(lambda: other.allows("a") and other.allows("p1"))
        deleted = await other.acls.delete([AclFilter(TOPIC, None, PatternType.ANY)])
        assert sorted(binding for binding, _ in deleted[0]) == sorted(created)
        await until(lambda: not one.allows("a") and not one.allows("p1"))

    play(scene)


def test_removing_one_of_three_acls_leaves_the_others_on_all_brokers() -> None:
    """CVE-2024-27309 lost the others."""

    async def scene(one: Broker, other: Broker) -> None:
        operations = (Operation.READ, Operation.WRITE, Operation.DELETE)
        removed = acl("a", Operation.WRITE)
        denial = AclBinding(removed.pattern, AclEntry("User:alice", "*", Operation.DELETE, Permission.DENY))
        await one.acls.create([acl("a", Operation.ALL), removed, denial])
        await until(lambda: [other.allows("a", operation) for operation in operations] == [True, True, False])
        await other.acls.delete([AclFilter(TOPIC, "a", PatternType.LITERAL, operation=Operation.WRITE)])
        await until(lambda: removed not in one.acls.acls())
        for broker in (one, other):
            assert [broker.allows("a", operation) for operation in operations] == [True, True, False]

    play(scene)


def test_concurrent_changes_are_not_lost() -> None:
    async def scene(one: Broker, other: Broker) -> None:
        operations = [operation for operation in Operation if Operation.ANY < operation < Operation.CREATE_TOKENS]
        await asyncio.gather(
            *(broker.acls.create([acl("a", operation)]) for operation in operations for broker in (one, other)),
        )
        data, _ = await one.session.get("/kafka-acl/Topic/a")
        assert len(json.loads(data)["acls"]) == len(operations)

    play(scene)


def test_the_znodes_have_the_layout_of_kafka() -> None:
    async def scene(one: Broker, _other: Broker) -> None:
        await one.acls.create([acl("a"), acl("p", shape=PatternType.PREFIXED)])
        stored = {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"}
        for path in ("/kafka-acl/Topic/a", "/kafka-acl-extended/prefixed/Topic/p"):
            data, _stat = await one.session.get(path)
            assert json.loads(data) == {"version": 1, "acls": [stored]}
        (name,) = await one.session.children("/kafka-acl-changes")
        assert name == "acl_changes_0000000000"
        assert (await one.session.get(f"/kafka-acl-changes/{name}"))[0] == b"TOPIC:a"
        (name,) = await one.session.children("/kafka-acl-extended-changes")
        data, _stat = await one.session.get(f"/kafka-acl-extended-changes/{name}")
        assert json.loads(data) == {"version": 1, "resourceType": "TOPIC", "name": "p", "patternType": "PREFIXED"}
        await one.acls.delete([AclFilter()])
        assert await one.session.exists("/kafka-acl/Topic/a") is None

    play(scene)


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{"principal":"alice"}]}',
        b"\xff",
    ],
)
def test_a_znode_that_cannot_be_read_denies_and_is_logged(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(one: Broker, other: Broker) -> None:
        await one.acls.create([acl("a"), acl("b"), acl("*")])
        await one.session.set("/kafka-acl/Topic/a", data)
        for _ in range(2):
            await one.session.create("/kafka-acl-changes/acl_changes_", b"topic:a", sequence=True)
        await until(lambda: not one.allows("a") and not other.allows("a"))
        decision = one.acls.authorize(ALICE, Operation.READ, TOPIC, "a")
        assert decision.reason is Reason.UNREADABLE
        assert one.allows("b")
        (result,) = await one.acls.create([acl("a")])
        assert result.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "/kafka-acl/Topic/a" in (result.message or "")

    with caplog.at_level(logging.ERROR):
        play(scene)
    first, count = written_lines(caplog.records)
    assert "path=/kafka-acl/Topic/a" in first
    assert "repeated=" in count


def test_an_invalid_notification_does_not_stop_the_next_one() -> None:
    async def scene(one: Broker, other: Broker) -> None:
        for text in (b"nonsense", b"topic:../x", b"TOPIC:"):
            await one.session.create("/kafka-acl-changes/acl_changes_", text, sequence=True)
        await one.acls.create([acl("a")])
        await until(lambda: other.allows("a"))

    play(scene)


@for_rows("name", ["", "a/b", ".", "..", "a\0b", "x" * 1025])
def test_names_that_cannot_be_znodes_are_refused(name: str) -> None:
    async def scene(one: Broker, _: Broker) -> None:
        results = await one.acls.create([acl(name), acl("good")])
        assert [result.code for result in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]

    play(scene)


def test_an_acl_in_several_filters_is_in_the_result_of_the_first() -> None:
    async def scene(one: Broker, _: Broker) -> None:
        await one.acls.create([acl("a"), acl("b")])
        deleted = await one.acls.delete([AclFilter(TOPIC, "b"), AclFilter(), AclFilter(TOPIC, "a")])
        assert [[binding.pattern.name for binding, _ in binding_list] for binding_list in deleted] == [["b"], ["a"], []]

    play(scene)


def test_a_new_session_reads_what_changed_in_between() -> None:
    async def scene(one: Broker, other: Broker) -> None:
        await one.acls.create([acl("a")])
        await until(lambda: other.allows("a"))
        other.session.expire()
        await one.acls.delete([AclFilter(TOPIC, "a")])
        await one.acls.create([acl("b")])
        assert other.allows("a")
        await other.session.reconnect(10_000)
        await other.acls.load()
        assert not other.allows("a")
        assert other.allows("b")

    play(scene)


def test_the_cost_of_a_change_does_not_grow_with_the_number_of_recent_ones() -> None:
    async def main(loop: SimLoop) -> None:
        sent = 0

        def delay_s() -> float:
            nonlocal sent
            sent += 1
            return 0.0

        broker = Broker(SimZooKeeper(delay_s=delay_s), WallClock(loop))
        await broker.start()

        async def messages_of_a_change(name: str) -> int:
            before = sent
            await broker.acls.create([acl(name)])
            await asyncio.sleep(1)
            return sent - before

        await messages_of_a_change("first")
        of_the_second = await messages_of_a_change("second")
        await broker.acls.create([acl(f"t{number}") for number in range(100)])
        await asyncio.sleep(1)
        assert await messages_of_a_change("last") == of_the_second > 0
        await broker.acls.close()
        await broker.session.close()

    simulate(main, seed=1)


def test_old_notifications_are_deleted() -> None:
    async def scene(one: Broker, _: Broker) -> None:
        await one.acls.create([acl("a")])
        await asyncio.sleep(16 * 60)
        await one.acls.create([acl("b")])
        await until(lambda: one.allows("b"))
        await asyncio.sleep(1)
        assert len(await one.session.children(security_znodes.LITERAL_CHANGES)) <= 2

    play(scene)


def test_the_decision_cache_is_bounded() -> None:
    async def scene(one: Broker, _: Broker) -> None:
        for number in range(25_000):
            one.allows(f"t{number}")
        assert len(vars(one.acls)["_decisions"]) <= 10_000

    play(scene)


def test_what_was_granted_is_decided_again_after_a_change() -> None:
    """Of one topic, and of several in one check."""

    async def scene(one: Broker, other: Broker) -> None:
        requested = RequestContext(9, 1, "client", ALICE_PEER, Access(one.acls), "fetch")

        def denied() -> frozenset[str]:
            return requested.denied(Operation.READ, TOPIC, iter(["a", "b", "a"]))

        assert denied() == {"a", "b"}
        await other.acls.create([acl("a"), acl("b")])
        await until(lambda: not denied())
        for _ in range(2):
            assert requested.allows(Operation.READ, TOPIC, "a")
            assert not requested.allows(Operation.WRITE, TOPIC, "a")
            assert not denied()
            assert requested.permitted(Operation.READ, TOPIC) == {"a", "b"}
        await other.acls.delete([AclFilter(TOPIC, "a")])
        await until(lambda: not one.allows("a"))
        assert requested.permitted(Operation.READ, TOPIC) == frozenset()
        assert denied() == {"a"}
        assert requested.permitted(Operation.READ, TOPIC) == {"b"}
        assert not requested.allows(Operation.READ, TOPIC, "a")

    play(scene)


def test_what_was_granted_is_bounded() -> None:
    async def scene(one: Broker, _: Broker) -> None:
        await one.acls.create([acl("t", shape=PatternType.PREFIXED)])
        access = Access(one.acls)
        for number in range(25_000):
            assert access.allows(ALICE_PEER, Operation.READ, TOPIC, f"t{number}", api="fetch")
        assert sum(map(len, access.granted.values())) <= 10_000

    play(scene)


def test_every_allowed_operation_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(one: Broker, _: Broker) -> None:
        await one.acls.create([acl("a")])
        requested = RequestContext(9, 1, "client", ALICE_PEER, Access(one.acls), "fetch")
        requested.denied(Operation.READ, TOPIC, ["a"])
        assert requested.permitted(Operation.READ, TOPIC) == {"a"}
        set_logger("kafka.authorizer.logger", "DEBUG")
        try:
            assert requested.permitted(Operation.READ, TOPIC) == frozenset()
            requested.denied(Operation.READ, TOPIC, ["a"])
            requested.check(Operation.READ, TOPIC, "a")
        finally:
            set_logger("kafka.authorizer.logger", None)
        requested.check(Operation.READ, TOPIC, "a")

    play(scene)
    assert [line.message.split()[0] for line in caplog.records if line.name == "kctl.authorizer"] == ["allowed"] * 2


def test_an_authorizer_that_does_not_cache_decides_on_each_request() -> None:
    class PlugIn:
        def __init__(self) -> None:
            self.is_open = True

        def authorize(self, *_: object) -> Decision:
            return Decision(self.is_open, Reason.PLUG_IN)

    plug_in = PlugIn()
    requested = RequestContext(9, 1, "client", ALICE_PEER, Access(cast("Authorizer", plug_in)), "fetch")
    assert not requested.denied(Operation.READ, TOPIC, ["a"])
    plug_in.is_open = False
    assert requested.denied(Operation.READ, TOPIC, ["a"]) == {"a"}


def test_a_znode_with_thousands_of_acls_is_decoded_in_a_thread() -> None:
    async def took_s(broker: Broker, name: str, count: int) -> float:
        pattern = ResourcePattern(TOPIC, name, PatternType.LITERAL)
        entries = [AclEntry(f"User:{n}", "*", Operation.READ, Permission.ALLOW) for n in range(count)]
        data = security_znodes.encode_entries(entries)
        await broker.session.create(security_znodes.pattern_path(pattern), data, make_parents=True)
        began_s = asyncio.get_running_loop().time()
        assert (await broker.acls.create([acl(name)]))[0].is_success
        return asyncio.get_running_loop().time() - began_s

    async def scene(one: Broker, _other: Broker) -> None:
        assert await took_s(one, "small", 1) < await took_s(one, "large", 2_000)

    play(scene)


@pytest.mark.parametrize("operation", [Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS])
def test_operations_of_newer_brokers_are_refused(operation: Operation) -> None:
    """As by Apache Kafka 2.8, which shares the znodes."""
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    problem = security_znodes.stored_problem(AclBinding(pattern, AclEntry("User:a", "*", operation, Permission.ALLOW)))
    assert problem == f"ACLs for the operation {operation.label} need Kafka 3.3 or newer"
