"""Client telemetry: what follows on each response, and the metrics of a push."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kctl.client.application.settings import ProducerConfig
from kctl.client.application.telemetry.payload import Metric, Totals, encoded, packed, selected
from kctl.client.application.telemetry.reporter import TelemetryReporter
from kctl.client.application.telemetry.standard_metrics import (
    consumer_metrics,
    producer_metrics,
    share_consumer_metrics,
)
from kctl.client.application.telemetry.subscription import (
    DEFAULT_INTERVAL_MS,
    PREFIXES_MAX,
    PUSH_INTERVAL_MS_MIN,
    Action,
    Closing,
    Event,
    GetSubscription,
    NoResponse,
    Push,
    PushReceived,
    Stop,
    Subscription,
    SubscriptionReceived,
    TelemetryState,
    TimeReached,
    WaitUntil,
    step,
)
from kctl.client.cluster import ClusterClient
from kctl.client.connections.asyncio_transport import AsyncioTransport
from kctl.client.connections.traffic import Spread, Window
from kctl.errors import ErrorCode
from kctl.model import ZERO_UUID
from kctl.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kctl.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kctl.records.compression import Codec, decompress
from tests.rows import for_rows
from tests.unit.client.fake_cluster import FakeCluster

ID = uuid.UUID(int=7)
ALL = Subscription(3, ("",), 1_000, 1 << 20, True, (Codec.ZSTD, Codec.LZ4))


def received(subscription: Subscription = ALL, error: ErrorCode = ErrorCode.NONE) -> SubscriptionReceived:
    return SubscriptionReceived(error, ID, subscription, jitter=0.5)


def pushed(error: ErrorCode = ErrorCode.NONE) -> PushReceived:
    return PushReceived(error)


def push(codec: Codec = Codec.ZSTD, *, is_terminating: bool = False, subscription: Subscription = ALL) -> Push:
    return Push(ID, subscription, codec, is_terminating)


GET, GET_AGAIN = GetSubscription(ZERO_UUID), GetSubscription(ID)
START = TimeReached()

Story = tuple[str, Sequence[tuple[int, Event, Action]]]


def refused(error: ErrorCode) -> Story:
    story: Sequence[tuple[int, Event, Action]] = [
        (0, received(), WaitUntil(500)),
        (500, START, push()),
        (500, pushed(error), WaitUntil(1_500)),
        (1_500, START, GET_AGAIN),
    ]
    return f"after {error.name} the subscription is asked for when the interval is over", story


def ended(error: ErrorCode) -> Story:
    end = Stop(f"{error.name}: {error.description}")
    story: Sequence[tuple[int, Event, Action]] = [
        (0, received(), WaitUntil(500)),
        (500, START, push()),
        (500, pushed(error), end),
        (900, Closing(), end),
    ]
    return f"{error.name} ends the telemetry", story


STORIES: Sequence[Story] = (
    (
        "the first push after the jitter, the others after the interval",
        [
            (10, START, GET),
            (20, received(), WaitUntil(520)),
            (519, START, WaitUntil(520)),
            (520, START, push()),
            (600, pushed(), WaitUntil(1_600)),
            (1_600, START, push()),
        ],
    ),
    (
        "a subscription without metrics is asked for again",
        [
            (0, START, GET),
            (0, received(ALL._replace(prefixes=())), WaitUntil(1_000)),
            (1_000, START, GET_AGAIN),
            (1_000, received(), WaitUntil(1_500)),
        ],
    ),
    (
        "intervals of no use are replaced",
        [
            (0, received(ALL._replace(prefixes=(), interval_ms=0)), WaitUntil(DEFAULT_INTERVAL_MS)),
            (0, received(ALL._replace(prefixes=(), interval_ms=1)), WaitUntil(PUSH_INTERVAL_MS_MIN)),
        ],
    ),
    (
        "another subscription is asked for at once, but not twice without a push between",
        [
            (0, received(), WaitUntil(500)),
            (500, START, push()),
            (500, pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID), GET_AGAIN),
            (500, received(), WaitUntil(1_000)),
            (1_000, START, push()),
            (1_000, pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID), WaitUntil(2_000)),
            (2_000, START, GET_AGAIN),
            (2_000, received(), WaitUntil(2_500)),
            (2_500, START, push()),
            (2_500, pushed(), WaitUntil(3_500)),
            (3_500, START, push()),
            (3_500, pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID), GET_AGAIN),
        ],
    ),
    (
        "a codec that is refused is not used again",
        [
            (0, received(), WaitUntil(500)),
            (500, START, push()),
            (500, pushed(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), GET_AGAIN),
            (500, received(), WaitUntil(1_000)),
            (1_000, START, push(Codec.LZ4)),
            (1_000, pushed(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), WaitUntil(2_000)),
            (2_000, START, GET_AGAIN),
            (2_000, received(), WaitUntil(2_500)),
            (2_500, START, push(Codec.NONE)),
        ],
    ),
    (
        "a codec that is not known is left out",
        [
            (0, received(ALL._replace(codecs=(9,))), WaitUntil(500)),
            (500, START, push(Codec.NONE, subscription=ALL._replace(codecs=(9,)))),
        ],
    ),
    *map(refused, (ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)),
    *map(ended, (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION)),
    ended(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    (
        "the first request is throttled",
        [
            (0, START, GET),
            (0, received(error=ErrorCode.THROTTLING_QUOTA_EXCEEDED), WaitUntil(DEFAULT_INTERVAL_MS)),
            (DEFAULT_INTERVAL_MS, START, GET),
        ],
    ),
    (
        "a lost connection",
        [
            (0, received(), WaitUntil(500)),
            (500, START, push()),
            (600, NoResponse(), WaitUntil(600 + DEFAULT_INTERVAL_MS)),
            (600 + DEFAULT_INTERVAL_MS, START, GET_AGAIN),
        ],
    ),
    (
        "a broker that does not serve it",
        [(0, START, GET), (0, NoResponse(is_permanent=True), Stop("the brokers do not serve client telemetry"))],
    ),
    (
        "the last push at the end",
        [
            (0, received(), WaitUntil(500)),
            (100, Closing(), push(is_terminating=True)),
            (150, pushed(ErrorCode.UNKNOWN_SUBSCRIPTION_ID), Stop()),
        ],
    ),
    ("the last push has no response", [(0, received(), WaitUntil(500)), (1, Closing(), push(is_terminating=True)),
                                       (2, NoResponse(), Stop())]),
    ("the end before a subscription", [(0, START, GET), (0, Closing(), Stop())]),
    (
        "the end with a subscription without metrics",
        [(0, received(ALL._replace(prefixes=())), WaitUntil(1_000)), (1, Closing(), Stop())],
    ),
    (
        "too many prefixes",
        [
            (
                0,
                received(ALL._replace(prefixes=("org",) * (PREFIXES_MAX + 1))),
                Stop(f"the subscription has more than {PREFIXES_MAX} prefixes"),
            )
        ],
    ),
)  # fmt: skip


@for_rows("name, story", STORIES)
def test_what_follows_on_each_response(name: str, story: Sequence[tuple[int, Event, Action]]) -> None:
    state = TelemetryState()
    for now_ms, event, action in story:
        assert step(state, event, now_ms) == action, (name, now_ms)


def metrics_data() -> Any:
    """The messages of opentelemetry-proto, as far as clients of Kafka use them, in the implementation of protobuf."""
    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="otlp", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    repeated = kinds.LABEL_REPEATED
    for message, fields in {
        "MetricsData": [("resource_metrics", 1, "ResourceMetrics", repeated)],
        "ResourceMetrics": [("resource", 1, "Resource", 1), ("scope_metrics", 2, "ScopeMetrics", repeated)],
        "Resource": [("attributes", 1, "KeyValue", repeated)],
        "ScopeMetrics": [("metrics", 2, "Metric", repeated)],
        "Metric": [("name", 1, kinds.TYPE_STRING, 1), ("gauge", 5, "Gauge", 1), ("sum", 7, "Sum", 1)],
        "Gauge": [("data_points", 1, "NumberDataPoint", repeated)],
        "Sum": [
            ("data_points", 1, "NumberDataPoint", repeated),
            ("aggregation_temporality", 2, kinds.TYPE_INT32, 1),
            ("is_monotonic", 3, kinds.TYPE_BOOL, 1),
        ],
        "NumberDataPoint": [
            ("start_time_unix_nano", 2, kinds.TYPE_FIXED64, 1),
            ("time_unix_nano", 3, kinds.TYPE_FIXED64, 1),
            ("as_double", 4, kinds.TYPE_DOUBLE, 1),
            ("attributes", 7, "KeyValue", repeated),
        ],
        "KeyValue": [("key", 1, kinds.TYPE_STRING, 1), ("value", 2, "AnyValue", 1)],
        "AnyValue": [("string_value", 1, kinds.TYPE_STRING, 1)],
    }.items():
        added = file.message_type.add(name=message)
        for name, number, kind, label in fields:
            field = added.field.add(name=name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".otlp.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("otlp.MetricsData"))


METRICS = [
    Metric("org.apache.kafka.producer.record.send.total", 5, is_total=True),
    Metric("org.apache.kafka.producer.node.request.latency.avg", 1.5, labels=(("node_id", "7"), ("näme", "é" * 90))),
]


@pytest.mark.parametrize("is_delta", [True, False])
def test_metrics_are_decoded_by_protobuf(is_delta: bool) -> None:
    points = Totals(100).points(METRICS, 200, is_delta=is_delta)
    data = metrics_data()()
    data.ParseFromString(encoded(points, {"group_id": "g"}, 200, is_delta=is_delta))
    (resource,) = data.resource_metrics
    assert [(pair.key, pair.value.string_value) for pair in resource.resource.attributes] == [("group_id", "g")]
    total, gauge = resource.scope_metrics[0].metrics
    assert (total.name, gauge.name) == tuple(metric.name for metric in METRICS)
    assert total.HasField("sum")
    assert not total.HasField("gauge")
    assert (total.sum.aggregation_temporality, total.sum.is_monotonic) == (1 if is_delta else 2, True)
    (point,) = total.sum.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (100, 200, 5.0)
    (point,) = gauge.gauge.data_points
    assert (point.start_time_unix_nano, point.time_unix_nano, point.as_double) == (0, 200, 1.5)
    labels = tuple((pair.key, pair.value.string_value) for pair in point.attributes)
    assert labels == METRICS[1].labels


def test_differences_begin_where_the_last_push_was_accepted() -> None:
    totals = Totals(0)

    def values(total: float, now_ns: int, *, is_delta: bool = True) -> tuple[float, int]:
        (point,) = totals.points([Metric("a", total, is_total=True)], now_ns, is_delta=is_delta)
        return point.value, point.start_ns

    assert values(5, 10) == (5, 0)
    assert values(7, 20) == (7, 0), "the first push was lost"
    totals.confirm()
    assert values(10, 30) == (3, 20)
    totals.confirm()
    assert values(10, 40) == (0, 30)
    totals.confirm()
    assert values(4, 50) == (4, 40), "the total has begun again"
    assert values(12, 60, is_delta=False) == (12, 0)


def test_metrics_are_selected_by_the_beginning_of_their_names() -> None:
    first, second = METRICS
    for prefixes, metrics in (
        ([""], METRICS),
        (["*"], METRICS),
        ([], []),
        (["org.apache.kafka.producer.record."], [first]),
        (["no.such", "org.apache.kafka.producer.node.request.latency.avg"], [second]),
        (["record.send"], []),
    ):
        assert selected(METRICS, prefixes) == metrics


@pytest.mark.parametrize("codec", list(Codec))
def test_what_does_not_fit_is_left_out_from_the_end(codec: Codec) -> None:
    points = Totals(1).points([Metric(f"metric.{number}", number) for number in range(1000)], 2, is_delta=True)
    whole = encoded(points, {}, 2, is_delta=True)
    data = packed(points, {}, 2, is_delta=True, codec=codec, bytes_max=1 << 20)
    assert data is not None
    assert decompress(codec, data) == whole
    data = packed(points, {}, 2, is_delta=True, codec=codec, bytes_max=1_500)
    assert data is not None
    assert len(data) <= 1_500
    part = decompress(codec, data)
    assert part in {encoded(points[: 1000 >> shift], {}, 2, is_delta=True) for shift in range(10)}
    assert packed(points, {}, 2, is_delta=True, codec=codec, bytes_max=5) is None


def test_the_metrics_of_partitions_come_last() -> None:
    counts = {"records-consumed-total": 3.0, "records-lag.or-ders-12": 9.0, "records-lag-max": 9.0}
    *others, lag = consumer_metrics(counts, Window())
    assert lag == Metric(
        "org.apache.kafka.consumer.fetch.manager.records.lag", 9, labels=(("topic", "or-ders"), ("partition", "12"))
    )
    assert not any(metric.labels for metric in others)
    window = Window(throttles={"Produce": Spread(2, 30, 20)})
    counts = dict.fromkeys(("records_acknowledged_total", "buffered_bytes", "requests_in_flight"), 1.0)
    made = {metric.name: metric.value for metric in producer_metrics(
        counts | {"buffer_limit_bytes": 4.0}, Spread(1, 8, 8), window
    )}  # fmt: skip
    prefix = "org.apache.kafka.producer"
    assert made[f"{prefix}.buffer.available.bytes"] == 3
    assert made[f"{prefix}.produce.throttle.time.avg"] == 15
    assert made[f"{prefix}.record.queue.time.max"] == 8
    names = [metric.name for metric in share_consumer_metrics({"fetch-total": 1.0}, Window())]
    assert "org.apache.kafka.consumer.share.fetch.manager.fetch.total" in names


def test_the_last_push_has_the_metrics_of_the_time_of_the_end() -> None:
    """Also if another push is in progress then, whose response comes when the client has ended its work."""
    pushes: list[PushTelemetryRequest] = []
    arrived, released = threading.Event(), threading.Event()

    def subscribe(_: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
        return GetTelemetrySubscriptionsResponse(
            error_code=0,
            client_instance_id=ID,
            subscription_id=3,
            push_interval_ms=1,
            telemetry_max_bytes=1 << 20,
            delta_temporality=False,
            requested_metrics=["*"],
        )

    def receive(request: PushTelemetryRequest) -> PushTelemetryResponse:
        pushes.append(request)
        arrived.set()
        released.wait(60)
        return PushTelemetryResponse(error_code=0)

    async def run() -> None:
        current = 1.0
        settings = ProducerConfig(bootstrap_servers=cluster.bootstrap).client_settings()
        async with ClusterClient(settings, AsyncioTransport()) as client:
            reporter = TelemetryReporter(client, "test", lambda _: [Metric("test.value", current)], dict)
            assert await reporter.client_instance_id(60_000) == ID
            assert await asyncio.to_thread(arrived.wait, 60)
            current = 2.0
            closing = asyncio.create_task(reporter.close())
            await asyncio.sleep(0)
            current = 3.0
            released.set()
            await closing

    with FakeCluster() as cluster:
        cluster.intercept(GetTelemetrySubscriptionsRequest, subscribe)
        cluster.intercept(PushTelemetryRequest, receive)
        asyncio.run(run())
    assert [request.terminating for request in pushes] == [False, True]
    values = []
    for request in pushes:
        data = metrics_data()()
        data.ParseFromString(request.metrics)
        metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
        values.append(metrics["test.value"].gauge.data_points[0].as_double)
    assert values == [1.0, 2.0]
