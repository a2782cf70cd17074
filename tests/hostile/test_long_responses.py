"""Responses that are much longer than their requests are bounded, and made and encoded without stopping the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.limits import READ_PER_SLICE_MAX, REQUEST_ELEMENTS_PER_SLICE_MAX, SLICE_OBJECTS
from kctl.model import LEADER_DURING_DELETE, TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kctl.protocol.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kctl.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kctl.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kctl.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kctl.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kctl.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kctl.protocol.apis.sync_group import SyncGroupResponse
from kctl.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.protocol.codec import ENCODED_AT_ONCE_BYTES_MAX
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.server.cluster.configs.alterations import ResourceType
from kctl.server.coordination.groups.events import CommitRequest
from kctl.server.coordination.groups.offsets import OffsetAndMetadata
from kctl.server.coordination.transactions.events import TransactionOverview, TransactionState
from kctl.server.handlers import describe_configs, describe_groups, describe_transactions, offset_fetch
from kctl.server.handlers.delete_groups import DeleteGroupsHandler
from kctl.server.handlers.describe_configs import DescribeConfigsHandler
from kctl.server.handlers.describe_groups import DescribeGroupsHandler
from kctl.server.handlers.describe_transactions import DescribeTransactionsHandler
from kctl.server.handlers.list_groups import ListGroupsHandler
from kctl.server.handlers.list_offsets import ListOffsetsHandler
from kctl.server.handlers.list_transactions import ListTransactionsHandler
from kctl.server.handlers.metadata import MetadataHandler
from kctl.server.handlers.offset_fetch import OffsetFetchHandler
from kctl.server.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from kctl.server.loop.slices import pause
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.record_work import RecordWork
from kctl.testing.sim_loop import SimLoop, simulate
from tests.hostile.test_amplification import turns_while
from tests.unit.groups.hosting import Host, settled
from tests.unit.handlers.disk import Disk
from tests.unit.handlers.world import World, context, known, play
from tests.unit.server.quota_free import quota_free_dispatcher
from tests.unit.transactions.hosting import Host as TransactionsHost

LIST_GROUPS = 16
DESCRIBE_ACLS = 29
ALL_ACLS = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


async def with_offsets(loop: SimLoop, partitions: int, *, metadata: str = "") -> Host:
    """A group "g" with one commit for each partition of a topic."""
    host = await Host(loop).start()
    offsets = {TopicPartition("t", index): OffsetAndMetadata(5, metadata=metadata) for index in range(partitions)}
    errors = await settled(host.coordinator.commit("g", CommitRequest(offsets=offsets)))
    assert set(errors.values()) == {ErrorCode.NONE}
    return host


def fetch_all(host: Host) -> Any:
    unused: Any = None  # By versions after 0.
    handler = OffsetFetchHandler(host.coordinator, unused, unused)
    return handler.handle(OffsetFetchRequest(group_id="g", topics=None), context(7))


def test_all_offsets_of_a_group_are_listed_in_slices() -> None:
    async def main(loop: SimLoop) -> None:
        response_text = asyncio.ensure_future(fetch_all(await with_offsets(loop, SLICE_OBJECTS * 5)))
        assert await turns_while(response_text) >= 5
        assert [len(topic.partitions) for topic in response_text.result().topics] == [SLICE_OBJECTS * 5]

    simulate(main, seed=1)


@pytest.mark.parametrize("require_stable", [False, True])
def test_the_offsets_of_many_named_partitions_are_returned_in_slices(require_stable: bool) -> None:
    async def main(loop: SimLoop) -> None:
        host = await with_offsets(loop, SLICE_OBJECTS * 3)
        unused: Any = None  # By versions after 0.
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=list(range(SLICE_OBJECTS * 4)))
        request = OffsetFetchRequest(group_id="g", topics=[topic], require_stable=require_stable)
        work = OffsetFetchHandler(host.coordinator, unused, unused).handle(request, context(7))
        response = asyncio.ensure_future(work)  # type: ignore[arg-type]
        assert await turns_while(response) >= 8
        offsets = [partition.committed_offset for partition in response.result().topics[0].partitions]
        assert offsets == [5] * (SLICE_OBJECTS * 3) + [-1] * SLICE_OBJECTS

    simulate(main, seed=1)


def test_metadata_of_one_topic_with_many_partitions_is_made_in_slices() -> None:
    """The response has the partitions at the time of the request, also if some change before it is complete."""
    count = SLICE_OBJECTS * 3

    async def scene(world: World) -> None:
        def update(leader: int, indexes: Iterable[int]) -> None:
            states = [
                UpdateMetadataPartitionState(
                    partition_index=index,
                    controller_epoch=1,
                    leader=leader,
                    leader_epoch=0,
                    isr=[0],
                    zk_version=0,
                    replicas=[0],
                )
                for index in indexes
            ]
            topic = UpdateMetadataTopicState(topic_name="t", partition_states=states)
            endpoint = UpdateMetadataEndpoint(port=1, host="h", listener="PLAINTEXT", security_protocol=0)
            brokers = [UpdateMetadataBroker(id=number, endpoints=[endpoint]) for number in (0, 1)]
            world.metadata.update(
                UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=[topic], live_brokers=brokers)
            )

        update(0, range(count))
        unused: Any = None
        handler = MetadataHandler("cluster", world.metadata, unused, world.configs, known())
        response = asyncio.ensure_future(handler.handle(MetadataRequest(topics=None), context(9)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        update(1, range(count))
        assert await turns_while(response) >= 3
        partitions = response.result().topics[0].partitions
        assert [partition.partition_index for partition in partitions] == list(range(count))
        assert {partition.leader_id for partition in partitions} == {0}

    play(scene)


@pytest.mark.parametrize("names", [None, range(SLICE_OBJECTS * 3)])
def test_metadata_of_many_topics_is_made_in_slices(names: Iterable[int] | None) -> None:
    """A topic that is deleted before the response is complete is not created again by the request for all topics."""
    count = SLICE_OBJECTS * 3

    async def scene(world: World) -> None:
        def update(leader: int, numbers: Iterable[int]) -> None:
            world.metadata.update(
                UpdateMetadataRequest(
                    controller_id=0,
                    controller_epoch=1,
                    topic_states=[
                        UpdateMetadataTopicState(
                            topic_name=f"t{number}",
                            partition_states=[
                                UpdateMetadataPartitionState(
                                    partition_index=0,
                                    controller_epoch=1,
                                    leader=leader,
                                    leader_epoch=0,
                                    isr=[0],
                                    zk_version=0,
                                    replicas=[0],
                                )
                            ],
                        )
                        for number in numbers
                    ],
                    live_brokers=[],
                )
            )

        update(0, range(count))
        unused: Any = None
        handler = MetadataHandler("cluster", world.metadata, unused, world.configs, known())
        topics = None if names is None else [MetadataRequestTopic(name=f"t{number}") for number in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=names is None)
        response = asyncio.ensure_future(handler.handle(request, context(9)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        update(LEADER_DURING_DELETE, [count - 1])
        assert await turns_while(response) >= 6
        found = response.result().topics
        existing = {f"t{number}" for number in range(count - 1)}
        assert {topic.name for topic in found if topic.error_code == ErrorCode.NONE} == existing
        assert len(found) == (count - 1 if names is None else count)

    play(scene)


@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_offsets_of_many_partitions_are_listed_in_slices(tmp_path: Path, timestamp: int) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        for number in range(3):
            disk.append(disk.lead("t", number), number + 1)
        handler = ListOffsetsHandler(disk.replicas, RecordWork(), disk.clock)
        indexes = range(READ_PER_SLICE_MAX * 3)
        topic = ListOffsetsTopic(
            name="t",
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes],
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = asyncio.ensure_future(handler.handle(request, context(5)))  # type: ignore[arg-type]
        assert await turns_while(response) >= 3
        results = response.result().topics[0].partitions
        assert [result.partition_index for result in results] == list(indexes)
        assert [result.offset for result in results[:3]] == ([1, 2, 3] if timestamp == -1 else [0, 0, 0])
        assert {result.error_code for result in results[3:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        disk.close()

    simulate(main, seed=1)


def test_ends_of_epochs_of_many_partitions_are_returned_in_slices(tmp_path: Path) -> None:
    async def main(loop: SimLoop) -> None:
        disk = Disk(loop, tmp_path)
        epoch = disk.lead("t").leader_epoch
        disk.append(disk.lead("t"), 2)
        partitions = [
            OffsetForLeaderPartition(partition=index, current_leader_epoch=-1, leader_epoch=epoch + 1)
            for index in range(SLICE_OBJECTS * 3)
        ]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=partitions)])
        work = OffsetForLeaderEpochHandler(disk.replicas).handle(request, context(3))
        response = asyncio.ensure_future(work)  # type: ignore[arg-type]
        assert await turns_while(response) >= 3
        results = response.result().topics[0].partitions
        assert (len(results), results[0].end_offset) == (SLICE_OBJECTS * 3, 2)
        assert {result.error_code for result in results[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        disk.close()

    simulate(main, seed=1)


def test_one_iteration_of_the_loop_runs_one_slice_of_all_long_requests() -> None:
    async def main(_loop: SimLoop) -> None:
        order: list[int] = []

        async def work(number: int) -> None:
            for _ in range(3):
                await pause()
                order.append(number)

        tasks = [asyncio.ensure_future(work(number)) for number in range(4)]
        await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            before = len(order)
            await asyncio.sleep(0)
            assert len(order) <= before + 1
        assert order == sorted(order), "the oldest request first"

    simulate(main, seed=1)


def test_a_cancelled_request_does_not_delay_the_others() -> None:
    async def main(_loop: SimLoop) -> None:
        waiting = [asyncio.ensure_future(pause()) for _ in range(100)]
        await asyncio.sleep(0)
        for task in waiting[:-1]:
            task.cancel()
        assert await turns_while(waiting[-1]) < 10

    simulate(main, seed=1)


def test_more_metadata_than_the_bound_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_fetch, "DESCRIBED_BYTES_MAX", 10 * SLICE_OBJECTS)

    async def main(loop: SimLoop) -> ErrorCode:
        response_text = fetch_all(await with_offsets(loop, SLICE_OBJECTS + 1, metadata="m" * 10))
        return ErrorCode.of((await response_text).error_code)

    assert simulate(main, seed=1) is ErrorCode.INVALID_REQUEST


def test_groups_are_described_until_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_groups, "DESCRIBED_BYTES_MAX", 250)

    async def main(loop: SimLoop) -> list[int]:
        host = await Host(loop).start()
        for number in range(4):
            await host.stable(f"g{number}", protocols=(("range", bytes(200)),))
        response_text = await DescribeGroupsHandler(host.coordinator).handle(
            DescribeGroupsRequest(groups=[f"g{number}" for number in range(4)]), context(5)
        )
        return [group.error_code for group in response_text.groups]

    assert simulate(main, seed=1) == [0, 0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_groups_are_listed_in_slices() -> None:
    async def main(loop: SimLoop) -> None:
        host = await Host(loop).start()
        for number in range(SLICE_OBJECTS + 1):
            await settled(
                host.coordinator.commit(
                    f"g{number}", CommitRequest(offsets={TopicPartition("t", 0): OffsetAndMetadata(5)})
                )
            )
        response_text = asyncio.ensure_future(
            ListGroupsHandler(host.coordinator).handle(ListGroupsRequest(states_filter=[]), context(4))
        )
        assert await turns_while(response_text) >= 2
        assert len(response_text.result().groups) == SLICE_OBJECTS + 1

    simulate(main, seed=1)


def test_configurations_are_described_until_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_configs, "DESCRIBED_BYTES_MAX", 1_000)

    async def scene(world: World) -> list[int]:
        for name in ("a", "b", "c"):
            await world.topic(name)
        handler = DescribeConfigsHandler(0, world.configs, world.metadata, world.watched_configs)
        resources = [
            DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None)
            for name in ("a", "b", "c")
        ]
        response_text = await handler.handle(DescribeConfigsRequest(resources=resources), context(4))
        return [result.error_code for result in response_text.results]

    codes = play(scene)
    assert codes[0] == ErrorCode.NONE
    assert codes[-1] == ErrorCode.INVALID_REQUEST


def listed(count: int) -> ListGroupsResponse:
    group = ListedGroup(group_id="g", protocol_type="", group_state="")
    return ListGroupsResponse(error_code=0, groups=[group] * count)


@pytest.mark.parametrize("waits", [False, True])
def test_a_long_response_is_encoded_in_a_thread_and_a_short_one_on_the_loop(waits: bool) -> None:
    async def main() -> None:
        for count in (SLICE_OBJECTS, SLICE_OBJECTS + 1):
            response = listed(count)

            def handle(
                _request: ListGroupsRequest, _context: RequestContext, response: ListGroupsResponse = response
            ) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
                return asyncio.sleep(0, response) if waits else response

            dispatcher = quota_free_dispatcher()
            dispatcher.register("list_groups", handle)
            frame = encode_request_header(RequestHeader(LIST_GROUPS, 2, 7, "h")) + codec.encode_bytes(
                ListGroupsRequest(states_filter=[]), 2
            )
            reply = dispatcher.handle(memoryview(frame), Peer("/127.0.0.1", "PLAINTEXT"))
            assert isinstance(reply, asyncio.Future) is (waits or count > SLICE_OBJECTS)
            chunks = await reply if isinstance(reply, asyncio.Future) else reply
            assert chunks is not None
            payload = b"".join(chunk for chunk in chunks if isinstance(chunk, bytes))
            assert int.from_bytes(payload[:4], "big") == len(payload) - 4
            decoded, end = codec.decode(ListGroupsResponse, payload, 2, 8)
            assert (len(decoded.groups), end) == (count, len(payload))

    asyncio.run(main())


class CountedName(str):
    """A name that counts those that have been freed."""

    __slots__ = ()
    freed = 0

    def __del__(self) -> None:
        CountedName.freed += 1


def described_acls(count: int) -> DescribeAclsResponse:
    """Resources with one ACL each, and one with as many."""

    def resource(acls: int) -> DescribeAclsResource:
        entries = [
            AclDescription(principal=CountedName("User:a"), host="*", operation=3, permission_type=3)
            for _ in range(acls)
        ]
        return DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=entries)

    return DescribeAclsResponse(error_code=0, resources=[*(resource(1) for _ in range(count)), resource(count)])


class HoldsArguments(ThreadPoolExecutor):
    """Holds the arguments of all calls, as a thread of the pool may for some time after a call has returned."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.held: list[tuple[Any, ...]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.held.append(args)
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("kind", ["response", "coroutine", "task", "future"])
def test_a_long_response_is_freed_in_slices(kind: str) -> None:
    """Freeing 95,000 ACLs at once took 20 ms."""
    count = REQUEST_ELEMENTS_PER_SLICE_MAX * 5

    def handle(_request: DescribeAclsRequest, _context: RequestContext) -> Any:
        if kind == "response":
            return described_acls(count)
        made = asyncio.sleep(0, described_acls(count))
        if kind == "coroutine":
            return made
        task = asyncio.ensure_future(made)
        if kind == "task":
            return task
        future = asyncio.get_running_loop().create_future()
        task.add_done_callback(lambda task: future.set_result(task.result()))
        return future

    async def main() -> None:
        CountedName.freed = 0
        asyncio.get_running_loop().set_default_executor(HoldsArguments())
        dispatcher = quota_free_dispatcher()
        dispatcher.register("describe_acls", handle)
        frame = encode_request_header(RequestHeader(DESCRIBE_ACLS, 2, 7, "h")) + codec.encode_bytes(ALL_ACLS, 2)
        reply = dispatcher.handle(memoryview(frame), Peer("/127.0.0.1", "PLAINTEXT"))
        assert isinstance(reply, asyncio.Future)
        freed = 0
        while not reply.done():
            await asyncio.sleep(0)
            before, freed = freed, CountedName.freed
            assert freed - before <= REQUEST_ELEMENTS_PER_SLICE_MAX + 1
        assert freed == 2 * count

    asyncio.run(main())


class CountedOverview(TransactionOverview):
    """An entry of a list that counts those that have been freed."""

    __slots__ = ()
    freed = 0

    def __del__(self) -> None:
        CountedOverview.freed += 1


def test_the_overviews_of_a_list_are_freed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 transactional ids took 27 ms at once."""
    count = REQUEST_ELEMENTS_PER_SLICE_MAX * 5

    async def main(loop: SimLoop) -> None:
        host = await TransactionsHost(loop).start()

        async def overviews(*_: object, **__: object) -> tuple[ErrorCode, list[str], list[TransactionOverview]]:
            found = [CountedOverview(f"id-{number}", number, TransactionState.EMPTY) for number in range(count)]
            return ErrorCode.NONE, [], list(found)

        monkeypatch.setattr(host.coordinator, "transactions", overviews)
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        handler = ListTransactionsHandler(host.coordinator)
        listed = asyncio.ensure_future(handler.handle(request, context(0)))
        freed = CountedOverview.freed = 0
        while not listed.done():
            await asyncio.sleep(0)
            before, freed = freed, CountedOverview.freed
            assert freed - before <= REQUEST_ELEMENTS_PER_SLICE_MAX + 1
        assert freed == count
        assert len(listed.result().transaction_states) == count
        await host.coordinator.stop()

    simulate(main, seed=1)


def test_the_length_of_a_message_is_found_without_visiting_all_of_it() -> None:
    class Counting(list[ListedGroup]):
        visited = 0

        def __iter__(self) -> Any:
            Counting.visited += 1
            return super().__iter__()

    groups = Counting(listed(1_000_000).groups)
    assert codec.is_long_to_encode(ListGroupsResponse(error_code=0, groups=groups))
    assert Counting.visited == 0


@pytest.mark.parametrize(
    "response",
    [
        DeleteGroupsResponse(results=[DeletableGroupResult(group_id="x" * 32_000, error_code=0)] * 40),
        JoinGroupResponse(
            error_code=0,
            protocol_name="p",
            leader="",
            member_id="",
            members=[JoinGroupResponseMember(member_id="m", metadata=bytes(32_000))] * 40,
        ),
        ListTransactionsResponse(error_code=0, unknown_state_filters=["x" * 32_000] * 40, transaction_states=[]),
        SyncGroupResponse(error_code=0, assignment=bytes(ENCODED_AT_ONCE_BYTES_MAX + 1)),
    ],
    ids=lambda response: type(response).__name__,
)
def test_a_response_with_much_text_is_encoded_in_a_thread(response: Any) -> None:
    assert codec.is_long_to_encode(response)


def test_a_response_with_little_text_is_encoded_on_the_loop() -> None:
    results = [DeletableGroupResult(group_id="x" * 500, error_code=0)] * SLICE_OBJECTS
    assert not codec.is_long_to_encode(DeleteGroupsResponse(results=results))


IDS = [f"{number}".ljust(32_000, "x") for number in range(20)]


def test_long_ids_are_hashed_one_in_a_slice() -> None:
    """Hashing such an id as Java does takes milliseconds."""

    async def main(loop: SimLoop) -> None:
        groups = (await Host(loop).start()).coordinator
        transactions = (await TransactionsHost(loop).start()).coordinator
        for reply in (
            DeleteGroupsHandler(groups).handle(DeleteGroupsRequest(groups_names=IDS), context(2)),
            DescribeGroupsHandler(groups).handle(DescribeGroupsRequest(groups=IDS), context(2)),
            DescribeTransactionsHandler(transactions).handle(
                DescribeTransactionsRequest(transactional_ids=IDS), context(0)
            ),
        ):
            assert await turns_while(reply) >= len(IDS)

    simulate(main, seed=1)


def test_partitions_of_transactions_are_described_in_slices_until_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [TopicPartition("t", index) for index in range(5 * REQUEST_ELEMENTS_PER_SLICE_MAX)]
    monkeypatch.setattr(describe_transactions, "DESCRIBED_BYTES_MAX", 8 * len(partitions))

    async def main(loop: SimLoop) -> None:
        host = await TransactionsHost(loop).start()
        for transactional_id in ("a", "b", "c"):
            await host.ongoing(*partitions, transactional_id=transactional_id)
        handler = DescribeTransactionsHandler(host.coordinator)
        request = DescribeTransactionsRequest(transactional_ids=["a", "b", "c"])
        describing = asyncio.ensure_future(handler.handle(request, context(0)))
        assert await turns_while(describing) >= 5
        states = describing.result().transaction_states
        assert [state.error_code for state in states] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        ]
        assert states[0].topics[0].partitions == list(range(len(partitions)))

    simulate(main, seed=1)
