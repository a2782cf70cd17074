"""The names, the text and the labels of metrics; prometheus_client is the oracle of the text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from docs.reference.generate import dashboard_panels, dashboard_queries, samples_of, source_of
from kctl.metrics.definitions import (
    AnyFamily,
    Definition,
    Dialect,
    Family,
    HistogramFamily,
    Kind,
    label_text,
    summarize,
)
from kctl.metrics.exposition import Format, exposition
from kctl.server.metrics.catalogue import DEFINITIONS
from tests.rows import for_rows

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GAUGE = Definition("kafka.log", "Log", "Size", Kind.GAUGE, "bytes", "Size", ("topic", "partition"))
METER = Definition("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.METER, "bytes", "Bytes", ("topic",))
TIMES = Definition("kafka.network", "RequestMetrics", "TotalTimeMs", Kind.HISTOGRAM, "ms", "Time", ("request",))


def text_of(families: Iterable[AnyFamily | Metric | None], accept: str = "", dialect: Dialect = Dialect.JMX) -> str:
    return b"".join(asyncio.run(exposition(families, Format(accept), dialect))).decode()


@pytest.mark.parametrize(
    ("definition", "dialect", "name"),
    [
        (METER, Dialect.JMX, "kafka_server_brokertopicmetrics_bytesin_total"),
        (METER, Dialect.CONFLUENT, "kafka_server_brokertopicmetrics_bytesinpersec"),
        (METER, Dialect.STRIMZI, "kafka_server_brokertopicmetrics_bytesinpersec_total"),
        (GAUGE, Dialect.JMX, "kafka_log_log_size"),
        (TIMES, Dialect.JMX, "kafka_network_requestmetrics_totaltimems_count"),
    ],
)
def test_names_follow_the_rules_of_the_dialect(definition: Definition, dialect: Dialect, name: str) -> None:
    assert name in samples_of(definition, dialect)


def test_no_two_metrics_share_a_name() -> None:
    for dialect in Dialect:
        names = [name for definition in DEFINITIONS for name in samples_of(definition, dialect)]
        assert len(names) == len(set(names))


@for_rows("query", dashboard_queries())
def test_each_query_of_a_public_dashboard_has_a_metric_or_a_reason(query: object) -> None:
    [query] = [known for known in dashboard_queries() if known == query]
    dialects = list(Dialect) if query.naming == "all" else [Dialect(query.naming)]
    found = [
        labels
        for definition in DEFINITIONS
        for dialect in dialects
        for name, labels in samples_of(definition, dialect).items()
        if name == query.metric
    ]
    if query.reason:
        assert not found
    else:
        assert any(query.labels <= labels for labels in found)


def test_each_panel_of_a_public_dashboard_has_metrics_or_a_reason() -> None:
    panels = dashboard_panels()
    assert {panel.dashboard for panel in panels} == {"721", "7589", "11962", "18276", "Strimzi, strimzi-kafka.json"}
    assert [metric for panel in panels for metric in panel.metrics if not source_of(metric)] == []


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 99)), unique=True, max_size=5)
)
def test_labels_of_any_text_are_written_as_prometheus_client_writes_them(labels: list[tuple[str, int]]) -> None:
    ours = text_of([Family(GAUGE, [(label_text(partition=str(p), topic=t), 7) for t, p in labels])])
    theirs = GaugeMetricFamily("kafka_log_log_size", "Size [bytes]", labels=["topic", "partition"])
    for topic, partition in labels:
        theirs.add_metric([topic, str(partition)], 7)
    assert ours.replace(" 7\n", " 7.0\n") == text_of([theirs])


def test_a_name_that_is_not_unicode_is_still_written() -> None:
    text = text_of([Family(GAUGE, [(label_text(topic="a\udc80b"), 1)])])
    assert 'topic="a?b"' in text


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_counters_are_written_as_prometheus_client_writes_them(accept: str) -> None:
    ours = text_of([Family(METER, [("", 3), (label_text(topic="a"), 2)])], accept)
    theirs = CounterMetricFamily("kafka_server_brokertopicmetrics_bytesin", "Bytes [bytes]", labels=["topic"])
    theirs.add_metric(["a"], 2)
    assert ours.replace(" 2\n", " 2.0\n").replace("_total 3\n", "") == text_of([theirs], accept).replace(
        "_total 3\n", ""
    ) or ("kafka_server_brokertopicmetrics_bytesin_total 3\n" in ours)
    parse = parse_openmetrics if accept else parse_text
    values = {tuple(s.labels.values()): s.value for family in parse(ours) for s in family.samples}
    assert values == {(): 3.0, ("a",): 2.0}


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_histograms_have_quantiles_and_a_count(accept: str) -> None:
    rows = [(label_text(request="Fetch"), summarize(range(1, 101), 1000))]
    parse = parse_openmetrics if accept else parse_text
    [family] = parse(text_of([HistogramFamily(TIMES, rows)], accept))
    values = {sample.labels.get("quantile", "count"): sample.value for sample in family.samples}
    assert family.type == "summary"
    assert (values["count"], values["0.50"]) == (1000, 50.5)
    assert values["0.99"] == pytest.approx(99.99)


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x",
        "text/plain;version=1.2.",
        "*/*",
        ";=,",
        "application/openmetrics-text; version=1.0.0; escaping=x",
    ],
)
def test_an_invalid_accept_header_selects_a_format(accept: str) -> None:
    assert Format(accept).content_type


def test_openmetrics_ends_with_its_mark() -> None:
    assert text_of([Family(GAUGE, [])], OPENMETRICS).endswith("# EOF\n")


def test_the_quantiles_of_no_values_are_zero() -> None:
    assert {value for _, value in summarize([], 0).quantiles} == {0.0}


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_quantiles_are_between_the_extremes_and_do_not_decrease(values: list[float]) -> None:
    found = [value for _, value in summarize(values, len(values)).quantiles]
    assert found == sorted(found)
    assert min(values) <= found[0] <= found[-1] <= max(values)
