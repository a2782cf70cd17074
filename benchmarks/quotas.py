"""Measures the time to handle one Produce request in the dispatcher, without quotas and with three kinds of them.

    python benchmarks/quotas.py

Everything but the append is the broker's code: decoding, the lookup of the client, the account, encoding.  The records
are not stored, so that the difference is visible; a request that appends takes about ten times as long.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping

from kctl.config.dynamic import ConfigView
from kctl.protocol import codec
from kctl.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kctl.protocol.headers import RequestHeader, encode_request_header
from kctl.server.loop.tasks import SystemClock
from kctl.server.network.dispatch import Dispatcher
from kctl.server.peers.connections import address_of
from kctl.server.requests.context import Peer, RequestContext
from kctl.server.requests.quotas.client_quotas import ClientQuotas

REQUESTS, RUNS = 20_000, 7
RECORD_BYTES = 16_384
PLENTY = str(10**15)
SETTINGS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "no quota": {},
    "quotas of other clients": {"clients/other": {"producer_byte_rate": "1"}},
    "byte rate": {"clients/<default>": {"producer_byte_rate": PLENTY}},
    "byte rate and request time": {
        "users/<default>": {"producer_byte_rate": PLENTY, "request_percentage": "1000000"},
    },
}


def main() -> None:
    samples: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(RUNS):
        for name, configs in SETTINGS.items():
            samples[name].append(asyncio.run(request_us(configs)))
    quiet = statistics.median(samples["no quota"])
    for name, figures in samples.items():
        median = statistics.median(figures)
        print(
            f"{name:28} {median:7.2f} us per request ({min(figures):.2f} to {max(figures):.2f}), {median - quiet:+.2f}"
        )


async def request_us(configs: Mapping[str, Mapping[str, str]]) -> float:
    """CPU time of one request, the mean of many."""
    clock = SystemClock()
    quotas = ClientQuotas(ConfigView({}).current, clock, address_of)
    await quotas.replace(configs)
    dispatcher = Dispatcher(quotas, time.monotonic)
    dispatcher.register("produce", produce)
    peer = Peer("/127.0.0.1", "PLAINTEXT")
    data = [PartitionProduceData(index=0, records=memoryview(bytes(RECORD_BYTES)))]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="orders", partition_data=data)])
    frame = memoryview(encode_request_header(RequestHeader(0, 7, 1, "producer-1")) + codec.encode_bytes(request, 7))
    used = time.process_time()
    for _ in range(REQUESTS):
        dispatcher.handle(frame, peer)
    return (time.process_time() - used) / REQUESTS * 1e6


def produce(request: ProduceRequest, _: RequestContext) -> ProduceResponse:
    topic = request.topic_data[0]
    response = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=[response])])


if __name__ == "__main__":
    main()
