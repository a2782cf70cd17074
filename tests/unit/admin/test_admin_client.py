"""The administration client: arguments, deadlines, and responses that are not as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kctl.admin import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclResourceType,
    AdminClient,
    AdminConfig,
    AsyncAdminClient,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    EntityType,
    FilterPart,
    Mechanism,
    NewPassword,
    NewTopic,
    Operation,
    Permission,
    QuotaChange,
    ResourcePattern,
    ResourceType,
    Results,
    TopicPartition,
)
from kctl.admin.client import arguments
from kctl.errors import ApiError, ClusterUnreachable, ConfigError, ErrorCode, KctlError, UsageError
from kctl.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.metadata import MetadataRequest
from tests.peers.probe import wait_until
from tests.rows import for_rows
from tests.unit.client.fake_cluster import DROP, FakeCluster

TOPIC = ConfigResource(ResourceType.TOPIC, "orders")
ANYONE = AclEntry("User:*", "*", Operation.READ, Permission.ALLOW)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=2) as started:
        yield started


def config(cluster: FakeCluster, **settings: Any) -> AdminConfig:
    return AdminConfig(bootstrap_servers=cluster.bootstrap, **settings)


@for_rows(
    "call, problem",
    [
        (lambda admin: admin.describe_topics("orders"), "names must be a list of str, not str 'orders'"),
        (lambda admin: admin.describe_topics(["orders", 7]), "names[1] must be a str, not int 7"),
        (lambda admin: admin.describe_topics([""]), "names[0] is empty"),
        (lambda admin: admin.delete_topics(["\ud800"]), "names[0] has no encoding in UTF-8"),
        (lambda admin: admin.delete_topics(["x"] * 6), "names has 6 items; the maximum of a call is 5"),
        (lambda admin: admin.create_topics(["orders"]), "topics[0] must be a NewTopic, not str 'orders'"),
        (lambda admin: admin.create_topics([NewTopic("a"), NewTopic("a")]), "topics[1]: 'a' occurs twice"),
        (
            lambda admin: admin.create_topics([NewTopic("a", partitions=0)]),
            "topics[0].partitions must be",
        ),
        (lambda admin: admin.create_topics([NewTopic("a", replication_factor=True)]), "topics[0].replication_factor"),
        (
            lambda admin: admin.create_topics([NewTopic("a", configs={"retention.ms": 7})]),  # type: ignore[dict-item]
            "topics[0].configs['retention.ms'] must be a str, not int 7",
        ),
        (
            lambda admin: admin.create_topics([NewTopic("a", partitions=2, assignment=[[0]])]),
            "topics[0] has an assignment; leave out partitions",
        ),
        (
            lambda admin: admin.create_topics([NewTopic("a", assignment=[["0"]])]),  # type: ignore[list-item]
            "topics[0].assignment[0][0] must be",
        ),
        (lambda admin: admin.create_partitions({"a": "3"}), "counts['a'] must be an int from 1"),
        (
            lambda admin: admin.create_partitions({"a": 3}, assignments={"b": [[0]]}),
            "assignments['b'] is about a",
        ),
        (lambda admin: admin.delete_records({("a", 0): 1}), "offsets[0] must be a TopicPartition, not tuple"),
        (
            lambda admin: admin.delete_records({TopicPartition("a", -1): 1}),
            "offsets[0].partition must be",
        ),
        (lambda admin: admin.delete_records({TopicPartition("a", 0): 1.5}), "offsets[a-0] must be an int from -1"),
        (lambda admin: admin.list_offsets({TopicPartition("a", 0): "first"}), "timestamps_ms[a-0] is 'first'; it must"),
        (lambda admin: admin.describe_configs([("topic", "a")]), "resources[0] must be a ConfigResource, not tuple"),
        (
            lambda admin: admin.describe_configs([ConfigResource(ResourceType.BROKER, "one")]),
            "resources[0]: the name must be the id of a broker as a str, not 'one'",
        ),
        (
            lambda admin: admin.alter_configs({TOPIC: [ConfigChange("x", ConfigOperation.SET)]}),
            "changes['orders'][0].value must be a str, not NoneType",
        ),
        (
            lambda admin: admin.alter_configs({TOPIC: [ConfigChange("x", ConfigOperation.DELETE, "1")]}),
            "changes['orders'][0]: DELETE has no value",
        ),
        (
            lambda admin: admin.create_acls([AclBinding(ResourcePattern(AclResourceType.TOPIC, ""), ANYONE)]),
            "bindings[0]: the resource name is empty",
        ),
        (lambda admin: admin.alter_group_offsets("g", {TopicPartition("a", 0): None}), "offsets[a-0] must be an int"),
        (lambda admin: admin.alter_group_offsets("", {}), "group_id is empty"),
        (lambda admin: admin.remove_members("g", instance_ids="x"), "instance_ids must be a list of str"),
        (lambda admin: admin.alter_quotas({("user", "a"): []}), "an entity must be a tuple of (type, name or None)"),
        (lambda admin: admin.set_password("a", "secret"), "password must be a NewPassword, not str"),
        (lambda admin: admin.elect_leaders(kind="preferred"), "kind must be an ElectionType"),
        (lambda admin: admin.alter_reassignments({TopicPartition("a", 0): [-1]}), "targets[a-0][0] must be an int"),
        (lambda admin: admin.list_topics(timeout_ms=0), "timeout_ms must be an int from 1"),
    ],
)
def test_wrong_arguments_are_named_before_a_request_is_sent(call: Callable[[Any], object], problem: str) -> None:
    with pytest.MonkeyPatch.context() as patch, AdminClient(AdminConfig(bootstrap_servers="127.0.0.1:1")) as admin:
        patch.setattr(arguments, "ITEMS_MAX", 5)
        with pytest.raises(UsageError) as raised:
            call(admin)
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.long
def test_arguments_of_any_type_raise_no_other_error(cluster: FakeCluster) -> None:
    """Also in the fields of values of the right type."""
    untyped: Any = [None, 7, True, 1.5, "x", b"x", "\ud800", object(), [None], ["x"], [[]], {None: None}, {"a": None}]
    tp: Any = TopicPartition
    wrong_values: list[Any] = [None, 7, "x", []]
    for wrong in wrong_values:
        untyped += [
            *([tp("a", wrong)], [tp(wrong, 0)], {tp("a", 0): wrong}, {tp("a", 0): [wrong]}),
            *([NewTopic(wrong)], [NewTopic("a", wrong)], [NewTopic("a", configs=wrong)]),
            *([NewTopic("a", configs={"x": wrong})], [NewTopic("a", assignment=[wrong])]),
            *([ConfigResource(ResourceType.TOPIC, wrong)], [ConfigResource(ResourceType.BROKER, wrong)]),
            *({TOPIC: wrong}, {TOPIC: [wrong]}, {TOPIC: [ConfigChange(wrong, ConfigOperation.SET, "x")]}),
            *({TOPIC: [ConfigChange("x", wrong, "x")]}, {TOPIC: [ConfigChange("x", ConfigOperation.SET, wrong)]}),
            *([AclBinding(wrong, ANYONE)], [AclBinding(ResourcePattern(AclResourceType.TOPIC, wrong), ANYONE)]),
            *([AclBinding(ResourcePattern(AclResourceType.TOPIC, "a"), AclEntry(wrong, wrong, wrong, wrong))],),
            *([AclFilter(wrong)], [AclFilter(name=wrong)], [AclFilter(operation=wrong)], [FilterPart(wrong)]),
            *({(("user", "a"),): wrong}, {(("user", "a"),): [QuotaChange(wrong, 1)]}),
            *({(("user", "a"),): [QuotaChange("x", wrong)]}, [FilterPart(EntityType.USER, wrong)]),
            *(NewPassword(wrong, (), 4_096), NewPassword("x", wrong, 4_096), NewPassword("x", (wrong,), 4_096)),
            NewPassword("x", (Mechanism.SCRAM_SHA_256,), wrong),
        ]
    with AdminClient(config(cluster)) as admin:
        for name in sorted(name for name in dir(admin) if not name.startswith("_") and name != "close"):
            parameters = list(inspect.signature(getattr(AdminClient, name)).parameters.values())[1:]
            needed: dict[str, Any] = {
                parameter.name: {"str": "a"}.get(parameter.annotation, {} if "Mapping" in parameter.annotation else [])
                for parameter in parameters
                if parameter.default is parameter.empty
            }
            for parameter in parameters:
                for value in untyped:
                    arguments = {"timeout_ms": 5_000, **needed, parameter.name: value}
                    try:
                        getattr(admin, name)(**arguments)
                    except KctlError:
                        continue
                    except Exception as error:
                        raise AssertionError(f"{name}({parameter.name}={value!r})") from error


@for_rows(
    "make, problem",
    [
        (lambda: AdminClient("localhost:9092"), "config must be an AdminConfig, not str"),  # type: ignore[arg-type]
        (lambda: AsyncAdminClient(None), "config must be an AdminConfig"),  # type: ignore[arg-type]
        (lambda: AdminConfig(bootstrap_servers="x", default_api_timeout_ms=0), "default_api_timeout_ms must be an int"),
        (lambda: AdminConfig.from_properties({"bootstrap.servers": "x", "bootstap": "y"}), "bootstap"),
        (lambda: AdminConfig.from_properties({"bootstrap.servers": "x", "request.timeout.ms": "soon"}), "soon"),
        (lambda: AdminClient(AdminConfig(bootstrap_servers="x")).list_topics(), "use it in a with statement"),
    ],
)
def test_wrong_settings_are_named(make: Callable[[], object], problem: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=problem):
        make()


def test_settings_of_properties_are_obeyed() -> None:
    properties = {"bootstrap.servers": "a:1,b:2", "default.api.timeout.ms": "7000", "request.timeout.ms": "500"}
    settings = AdminConfig.from_properties(properties, client_id="till-7").client_settings()
    assert settings.bootstrap == (("a", 1), ("b", 2))
    assert (settings.timeout_ms, settings.response_timeout_ms, settings.client_id) == (7_000, 500, "till-7")


def test_an_empty_call_sends_nothing() -> None:
    with AdminClient(AdminConfig(bootstrap_servers="127.0.0.1:1")) as admin:
        calls: list[Callable[[], Any]] = [
            lambda: admin.describe_topics([]),
            lambda: admin.create_topics([]),
            lambda: admin.delete_records({}),
            lambda: admin.alter_configs({}),
            lambda: admin.delete_groups([]),
            lambda: admin.elect_leaders([]),
            lambda: admin.reset_group_offsets("g", {}),
        ]
        assert [call() for call in calls] == [{}] * len(calls)


def test_items_that_the_response_lacks_are_errors(cluster: FakeCluster) -> None:
    cluster.intercept(CreateTopicsRequest, lambda _: CreateTopicsResponse(topics=[]))
    with AdminClient(config(cluster)) as admin:
        created = admin.create_topics([NewTopic("a"), NewTopic("b")])
    assert {name: error.code for name, error in created.errors.items()} == dict.fromkeys(
        "ab", ErrorCode.UNKNOWN_SERVER_ERROR
    )
    with pytest.raises(ApiError, match="a: the response of the broker does not contain this item"):
        created.require()


def test_a_broker_that_cannot_list_its_groups_is_not_left_out(cluster: FakeCluster) -> None:
    refusal = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[])
    cluster.intercept(ListGroupsRequest, lambda _: refusal)
    with AdminClient(config(cluster)) as admin, pytest.raises(ApiError, match=r"^broker "):
        admin.list_groups()


def test_a_change_is_not_repeated_after_a_lost_connection_and_a_query_is(cluster: FakeCluster) -> None:
    sent: list[object] = []

    def drop(request: object) -> object:
        sent.append(request)
        return DROP

    cluster.create("orders")
    cluster.intercept(CreateTopicsRequest, drop)
    with AdminClient(config(cluster)) as admin:
        admin.list_topics()
        with pytest.raises(ClusterUnreachable):
            admin.create_topics([NewTopic("a")])
        assert len(sent) == 1
        left = [DROP] * 3
        cluster.intercept(MetadataRequest, lambda _: left.pop() if left else None)
        assert [topic.name for topic in admin.list_topics()] == ["orders"]
        assert left == []


def test_each_call_has_a_deadline_of_its_own(cluster: FakeCluster) -> None:
    """Also beside one that waits, and on the same connection afterwards."""
    cluster.create("orders")
    received: list[object] = []

    def no_response(request: object) -> bytes:
        received.append(request)
        return b""

    cluster.intercept(CreateTopicsRequest, no_response)

    async def run() -> list[str]:
        async with AsyncAdminClient(config(cluster)) as admin:
            waiting = asyncio.create_task(admin.create_topics([NewTopic("a")], timeout_ms=60_000))
            # A connection takes longer than the deadline of the next call on a busy machine.
            await asyncio.to_thread(wait_until, lambda: bool(received), what="the first request", timeout_s=60)
            with pytest.raises(ApiError, match="create_topics has no result after 50 ms; the brokers may have") as late:
                await admin.create_topics([NewTopic("b")], timeout_ms=50)
            assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
            names = [topic.name for topic in await admin.list_topics()]
            assert not waiting.done()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            return names

    assert asyncio.run(run()) == ["orders"]


@pytest.mark.long
def test_the_deadline_of_a_call_is_not_that_of_the_connections_it_opens() -> None:
    with FakeCluster() as cluster, AdminClient(config(cluster)) as admin:
        cluster.intercept(CreateTopicsRequest, lambda _: b"")  # no response
        with contextlib.suppress(ApiError, ClusterUnreachable):  # late on a busy machine
            admin.list_topics(timeout_ms=300)
        with pytest.raises(ApiError, match="create_topics has no result after 900 ms"):
            admin.create_topics([NewTopic("a")], timeout_ms=900)


def test_threads_share_a_client_and_ctrl_c_ends_a_call(cluster: FakeCluster) -> None:
    cluster.create("orders")
    with AdminClient(config(cluster)) as admin:
        counts: list[int] = []
        threads = [threading.Thread(target=lambda: counts.append(len(admin.list_topics()))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == [1] * 8

        def interrupt(_: object) -> bytes:
            os.kill(os.getpid(), signal.SIGINT)
            return b""

        cluster.intercept(CreateTopicsRequest, interrupt)
        with pytest.raises(KeyboardInterrupt):
            admin.create_topics([NewTopic("a")])
        assert len(admin.list_topics()) == 1
    with pytest.raises(UsageError, match="is closed"):
        admin.list_topics()


def test_results_name_the_item_once() -> None:
    found: Results[str, int] = Results.of(["a"], {"a": ApiError(ErrorCode.INVALID_CONFIG, "a: wrong")})
    assert str(found.errors["a"]) == "a: wrong"
    assert Results.of(["a"], {"a": 1}).require() == {"a": 1}


def test_both_clients_have_the_same_methods() -> None:
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (AdminClient, AsyncAdminClient)]
    assert public[0] == public[1]
    assert all(getattr(AdminClient, name).__doc__ for name in public[0])
