"""What the metrics of brokers say about clients."""

from __future__ import annotations

from kctl.admin.cluster.clients import DeniedOperation, OldRequest, Software, ThrottledClient, client_metrics
from kctl.admin.cluster.metrics import Sample, is_of_broker

SAMPLES = [
    Sample(
        "kafka_server_socket_server_metrics_connections",
        {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"},
        2,
    ),
    # As the JMX exporter writes it, once for each listener and thread.
    *(
        Sample(
            "kafka_server_socketservermetrics_connections",
            {"client_software_name": "librdkafka", "client_software_version": "2.3.0", "networkprocessor": thread},
            1,
        )
        for thread in "01"
    ),
    Sample("kafka_server_socket_server_metrics_connections", {}, 1),
    Sample("kafka_network_requestmetrics_requests_total", {"request": "Fetch", "version": "3"}, 12),
    Sample("kafka_network_requestmetrics_requests_total", {"request": "Fetch", "version": "4"}, 12),
    Sample("kafka_network_requestmetrics_requests_total", {"request": "Produce", "version": "2"}, 0),
    Sample("kafka_network_requestmetrics_requests_total", {"request": "Metadata", "version": "0"}, 7),
    Sample(
        "kctl_server_authorizer_denied_total",
        {"principal": "User:bob", "operation": "Read", "resource_type": "Topic", "resource_name": "orders"},
        3,
    ),
    Sample("kafka_server_produce_throttle_time", {"user": "", "client_id": "load"}, 20.5),
    Sample("kafka_server_fetch_throttle_time", {"user": "bob", "client_id": ""}, 120),
    Sample("kafka_server_request_throttle_time", {"user": "eve", "client_id": ""}, float("nan")),
]


def test_software_old_requests_and_throttled_clients_are_read() -> None:
    found = client_metrics(SAMPLES)
    assert found.connections == {
        Software("apache-kafka-java", "3.9.1"): 2,
        Software("librdkafka", "2.3.0"): 2,
        Software("unknown", "unknown"): 1,
    }
    assert found.old_requests == (OldRequest("Fetch", 3, 12),)
    assert found.denied == (DeniedOperation("User:bob", "Read", "Topic", "orders", 3),)
    assert found.throttled == (
        ThrottledClient("fetch", "bob", "", 120),
        ThrottledClient("produce", "", "load", 20.5),
    )


def test_loopback_address_of_another_machine_is_not_a_brokers_endpoint() -> None:
    assert is_of_broker(("127.0.0.1", 9404), "localhost")
    assert is_of_broker(("10.0.0.1", 9404), "10.0.0.1")
    assert not is_of_broker(("127.0.0.1", 9404), "10.0.0.1")
    assert not is_of_broker(("10.0.0.1", 0), "10.0.0.1")
