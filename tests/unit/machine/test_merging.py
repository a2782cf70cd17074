"""Metrics of several brokers in one exposition, read back by the parser of Prometheus' client library."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from kctl.metrics.exposition import labelled, merged

LABELS = st.text(max_size=8)


def registry_of(values: dict[str, float], plain: float) -> CollectorRegistry:
    registry = CollectorRegistry()
    bytes_in = Gauge("bytes_in", 'Received {a="b"} [bytes]', ["topic"], registry=registry)
    for topic, value in values.items():
        bytes_in.labels(topic).set(value)
    Gauge("uptime", "Time since the start", registry=registry).set(plain)
    return registry


def test_families_are_together_and_described_once() -> None:
    texts = [generate_latest(registry_of({"a": broker}, 1)).decode() for broker in (1, 2)]
    text = b"".join(merged(labelled(text, number) for number, text in enumerate(texts))).decode()
    assert text.splitlines() == [
        '# HELP bytes_in Received {a="b"} [bytes]',
        "# TYPE bytes_in gauge",
        'bytes_in{broker="0",topic="a"} 1.0',
        'bytes_in{broker="1",topic="a"} 2.0',
        "# HELP uptime Time since the start",
        "# TYPE uptime gauge",
        'uptime{broker="0"} 1.0',
        'uptime{broker="1"} 1.0',
    ]


def test_family_of_one_broker_only_and_empty_labels() -> None:
    first = "# TYPE a gauge\na{} 1\n"
    second = "undescribed 1\n# TYPE b gauge\nb 2 1700000000\n"
    assert b"".join(merged([labelled(first, 1), labelled(second, 2), labelled("", 3)])).decode() == (
        '# TYPE a gauge\na{broker="1"} 1\n# TYPE b gauge\nb{broker="2"} 2 1700000000\n'
    )


@given(st.lists(st.dictionaries(LABELS, st.floats(allow_nan=False), max_size=4), max_size=4))
def test_every_sample_of_every_broker_is_read_back(brokers: list[dict[str, float]]) -> None:
    registries = [registry_of(values, number) for number, values in enumerate(brokers)]
    expected = Counter(
        (sample.name, tuple(sorted({**sample.labels, "broker": str(number)}.items())), sample.value)
        for number, registry in enumerate(registries)
        for family in registry.collect()
        for sample in family.samples
    )
    for generate, read, end in ((generate_latest, parse, b""), (generate_openmetrics, parse_openmetrics, b"# EOF\n")):
        texts = [generate(registry).decode() for registry in registries]
        text = b"".join(merged(labelled(text, number) for number, text in enumerate(texts))) + end
        families = list(read(text.decode()))
        assert len({family.name for family in families}) == len(families)
        assert expected == Counter(
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in families
            for sample in family.samples
        )
