"""Responses that are much longer than their requests are bounded, and made and encoded without stopping the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kctl.errors import ErrorCode
from kctl.limits import SLICE_OBJECTS
from kctl.model import TopicPartition
from kctl.protocol import codec
from kctl.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kctl.protocol.apis.describe_groups import DescribeGroupsRequest
from kctl.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.offset_fetch import OffsetFetchRequest
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.server.config_alterations import ResourceType
from kctl.server.groups.events import CommitRequest
from kctl.server.groups.offsets import OffsetAndMetadata
from kctl.server.handlers import describe_configs, describe_groups, offset_fetch
from kctl.server.handlers.describe_configs import DescribeConfigsHandler
from kctl.server.handlers.describe_groups import DescribeGroupsHandler
from kctl.server.handlers.list_groups import ListGroupsHandler
from kctl.server.handlers.offset_fetch import OffsetFetchHandler
from kctl.server.requests.context import Peer, RequestContext
from kctl.testing.sim_loop import SimLoop, simulate
from tests.hostile.test_amplification import turns_while
from tests.unit.groups.hosting import Host, settled
from tests.unit.handlers.world import World, context, play
from tests.unit.server.quota_free import quota_free_dispatcher

LIST_GROUPS = 16


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
        handler = DescribeConfigsHandler(0, world.configs, world.metadata, world.resources)
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


def test_the_length_of_a_message_is_found_without_visiting_all_of_it() -> None:
    class Counting(list[ListedGroup]):
        visited = 0

        def __iter__(self) -> Any:
            Counting.visited += 1
            return super().__iter__()

    groups = Counting(listed(1_000_000).groups)
    assert codec.is_long_to_encode(ListGroupsResponse(error_code=0, groups=groups))
    assert Counting.visited == 0
