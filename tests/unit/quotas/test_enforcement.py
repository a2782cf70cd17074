"""Requests of limited clients through the dispatcher and the pump of their connection, in virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from kctl.config.dynamic import ConfigView
from kctl.protocol import codec
from kctl.protocol.apis.list_groups import ListGroupsRequest, ListGroupsResponse
from kctl.protocol.apis.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kctl.protocol.apis.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kctl.protocol.headers import RequestHeader, decode_response_header, encode_request_header
from kctl.security.quotas import QuotaGroup
from kctl.server.network.connections.buffer_pool import BufferPool
from kctl.server.network.connections.channel import DirectChannel
from kctl.server.network.connections.inbox import Inbox
from kctl.server.network.connections.request_pump import RequestPump, TurnEnd
from kctl.server.network.dispatch import Dispatcher
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.quotas.client_quotas import ClientQuotas
from kctl.testing.sim_clock import SimClock
from kctl.testing.sim_loop import SimLoop, simulate
from tests.unit.server.test_inbox import feed, framed

PRODUCE, LIST_GROUPS, UPDATE_METADATA = 0, 16, 6


class Scene:
    """One connection of user alice with client id app, to a broker whose handlers do nothing."""

    def __init__(self, loop: SimLoop, quotas: ClientQuotas) -> None:
        self.loop = loop
        self.quotas = quotas
        self.dispatcher = Dispatcher(quotas, loop.time)
        self.dispatcher.register("produce", self._produce)
        self.dispatcher.register("list_groups", self._list_groups)
        self.dispatcher.register("update_metadata", lambda _, __: UpdateMetadataResponse(error_code=0))
        self.inbox = Inbox(BufferPool(is_poisoned=True), 64 << 20)
        self.sent: list[tuple[float, bytes]] = []
        self.handled = 0
        self.handler_s = 0.0
        self.wakes = 0
        peer = Peer("/127.0.0.1", "PLAINTEXT", "User:alice")
        channel = DirectChannel(self.dispatcher.handle, peer, frame_bytes_max=64 << 20)
        self.pump = RequestPump(self.inbox, channel, loop=loop, put=self._put, on_wake=self._wake)

    def send(self, api_key: int, version: int, request: Any, *, client_id: str = "app") -> None:
        body = codec.encode_bytes(request, version)
        feed(self.inbox, framed(encode_request_header(RequestHeader(api_key, version, 1, client_id)) + body))

    def produce(self, size: int, *, acks: int = 1, client_id: str = "app") -> None:
        """Sends a produce request whose frame has `size` bytes, and handles what may be handled."""
        data = [PartitionProduceData(index=0, records=memoryview(b""))]
        request = ProduceRequest(acks=acks, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
        body = codec.encode_bytes(request, 7)
        header = encode_request_header(RequestHeader(PRODUCE, 7, 1, client_id))
        data[0].records = memoryview(bytes(size - len(header) - len(body)))
        self.send(PRODUCE, 7, request, client_id=client_id)
        self.pump.turn()

    def throttle_ms(self) -> int:
        """The throttle time in the last response, to Produce 7."""
        data = self.sent[-1][1][4:]
        response, _ = codec.decode(ProduceResponse, data, 7, decode_response_header(data, PRODUCE, 7)[1])
        return response.throttle_time_ms

    def _produce(self, request: ProduceRequest, _: RequestContext) -> ProduceResponse | None:
        self.handled += 1
        return None if request.acks == 0 else ProduceResponse(responses=[])

    def _list_groups(self, _: ListGroupsRequest, __: RequestContext) -> ListGroupsResponse:
        self.handled += 1
        self.loop.pass_time(self.handler_s)
        return ListGroupsResponse(error_code=0, groups=[])

    def _put(self, chunks: list[Any]) -> int:
        data = b"".join(bytes(chunk) for chunk in chunks)
        assert struct.unpack_from(">i", data)[0] == len(data) - 4
        self.sent.append((self.loop.time(), data))
        return len(data)

    def _wake(self) -> None:
        self.wakes += 1
        self.pump.turn()


def play(
    scene: Callable[[Scene], Awaitable[None]],
    configs: Mapping[str, Mapping[str, str]],
    properties: Mapping[str, str] | None = None,
) -> None:
    async def main(loop: SimLoop) -> None:
        quotas = ClientQuotas(ConfigView(properties or {}).current, SimClock(loop.time), _no_hosts)
        await quotas.replace(configs)
        made = Scene(loop, quotas)
        await scene(made)
        made.pump.close()

    simulate(main, seed=1)


async def _no_hosts(_: str) -> str | None:
    return None


async def until(loop: SimLoop, time_s: float) -> None:
    await asyncio.sleep(time_s - loop.time())


ALICE_100_KB = {"users/alice": {"producer_byte_rate": "100000"}}


def test_a_response_beyond_the_quota_is_sent_at_once_and_the_next_request_waits() -> None:
    async def scene(made: Scene) -> None:
        start_s = made.loop.time()
        made.produce(2_000_000)
        assert made.sent[-1][0] == start_s
        # 2 MB in a window of 10 s are twice the limit: another 10 s.
        assert made.throttle_ms() == 10_000
        made.produce(100)
        assert made.pump.turn() is TurnEnd.WAITS
        assert (made.handled, made.wakes) == (1, 0)
        await until(made.loop, start_s + 9.99)
        assert made.handled == 1
        await until(made.loop, start_s + 10.01)
        assert (made.handled, made.wakes) == (2, 1)
        reading = made.quotas.readings()["producer_byte_rate"][QuotaGroup("alice", "")]
        # The first window counts as 10 s from its start, so that the second request is throttled too, as in Kafka, and
        # for its own 100 bytes.
        assert (reading.limit, reading.throttle_count, reading.throttle_ms_total) == (100_000, 2, 20_001)

    play(scene, ALICE_100_KB)


def test_a_produce_request_without_response_mutes_the_connection_too() -> None:
    async def scene(made: Scene) -> None:
        made.produce(2_000_000, acks=0)
        made.produce(100)
        assert (made.handled, made.sent) == (1, [])
        assert made.pump.is_muted
        await until(made.loop, made.loop.time() + 10.01)
        assert made.handled == 2

    play(scene, ALICE_100_KB)


def test_other_clients_are_not_throttled() -> None:
    async def scene(made: Scene) -> None:
        made.produce(2_000_000, client_id="other")
        assert made.throttle_ms() == 0
        made.produce(100)
        assert made.handled == 2

    play(scene, {"clients/app": {"producer_byte_rate": "1000"}})


@pytest.mark.long
def test_the_rate_over_ten_minutes_is_within_five_percent_of_the_quota() -> None:
    """The client sends its next request as soon as the broker takes it."""

    async def scene(made: Scene) -> None:
        start_s, size = made.loop.time(), 40_000
        while made.loop.time() < start_s + 600:
            made.produce(size)
            while made.pump.is_muted:
                await until(made.loop, made.loop.time() + 0.01)
            await until(made.loop, made.loop.time() + 0.02)
        rate = made.handled * size / (made.loop.time() - start_s)
        assert 0.95 * 100_000 <= rate <= 1.05 * 100_000

    play(scene, ALICE_100_KB)


def test_request_time_is_counted_and_throttled_for_at_most_one_sample() -> None:
    async def scene(made: Scene) -> None:
        made.handler_s = 5.0  # 500 percent-seconds in a window of 10 s are 50 %.
        start_s = made.loop.time()
        made.send(LIST_GROUPS, 4, ListGroupsRequest())
        made.send(LIST_GROUPS, 4, ListGroupsRequest())
        made.pump.turn()
        ((_, data),) = made.sent
        response, _ = codec.decode(ListGroupsResponse, data[4:], 4, decode_response_header(data[4:], 16, 4)[1])
        assert response.throttle_time_ms == 1_000
        assert made.handled == 1
        await until(made.loop, start_s + 5.99)
        assert made.handled == 1
        await until(made.loop, start_s + 6.01)
        assert made.handled == 2

    play(scene, {"users/alice": {"request_percentage": "10"}})


def test_requests_of_brokers_are_exempt() -> None:
    async def scene(made: Scene) -> None:
        for _ in range(3):
            request = UpdateMetadataRequest(controller_id=0, controller_epoch=1, topic_states=[], live_brokers=[])
            made.send(UPDATE_METADATA, 6, request)
            assert made.pump.turn() is TurnEnd.ANSWERED_ONE
        assert len(made.sent) == 3

    play(scene, {"users/alice": dict.fromkeys(("request_percentage", "producer_byte_rate"), "0")})


def test_closing_a_muted_connection_ends_its_wait() -> None:
    async def scene(made: Scene) -> None:
        made.produce(2_000_000)
        made.pump.close()
        await until(made.loop, made.loop.time() + 60)
        assert made.wakes == 0

    play(scene, ALICE_100_KB)


def test_a_changed_quota_applies_to_the_next_request() -> None:
    async def scene(made: Scene) -> None:
        made.produce(500_000)
        assert made.throttle_ms() == 0
        await made.quotas.change("users/alice", {"producer_byte_rate": "25000"})
        made.produce(1_000)
        assert 10_000 <= made.throttle_ms() <= 10_100

    play(scene, ALICE_100_KB)


def test_a_quota_for_a_narrower_group_applies_to_the_next_request_and_ends_with_it() -> None:
    async def scene(made: Scene) -> None:
        made.produce(1_000)
        await made.quotas.change("users/alice/clients/app", {"producer_byte_rate": "1"})
        made.produce(1_000)
        assert made.throttle_ms() > 0
        while made.pump.is_muted:
            await until(made.loop, made.loop.time() + 1)
        await made.quotas.change("users/alice/clients/app", {})
        made.produce(1_000)
        assert made.throttle_ms() == 0

    play(scene, ALICE_100_KB)


def test_each_request_counts_for_its_own_client_id() -> None:
    async def scene(made: Scene) -> None:
        for client_id, is_throttled in (("app", False), ("slow", True), ("app", False), ("other", False)):
            made.produce(1_000, client_id=client_id)
            assert bool(made.throttle_ms()) is is_throttled, client_id
            while made.pump.is_muted:
                await until(made.loop, made.loop.time() + 1)

    play(scene, {"clients/slow": {"producer_byte_rate": "10"}, "clients/app": {"producer_byte_rate": "100000"}})


def test_clients_of_one_group_share_its_meter_after_unused_groups_are_forgotten() -> None:
    async def scene(made: Scene) -> None:
        made.produce(1_000)
        await until(made.loop, made.loop.time() + 2 * 3_600)
        made.quotas.client("User:carol", "new")  # Unknown clients make it search for unused groups.
        made.produce(1_500_000)
        alice = made.quotas.client("User:alice", "app")
        assert alice is not None
        assert alice.produce is not None
        assert made.throttle_ms() == alice.produce.throttle_ms_total > 0

    play(scene, {**ALICE_100_KB, "users/carol": {"producer_byte_rate": "100"}})
