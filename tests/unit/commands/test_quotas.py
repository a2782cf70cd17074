"""kctl quotas, and kctl configs for users, clients and ips."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from kctl.commands.frame.exit_status import ExitStatus
from kctl.protocol.apis.alter_client_quotas import AlterClientQuotasRequest
from tests.rows import for_rows
from tests.unit.commands.conftest import Kctl
from tests.unit.commands.quota_cluster import QuotaCluster

ALICE = (("user", "alice"),)
ALICE_APP = (("user", "alice"), ("client-id", "app"))
ANY_USER = (("user", None),)
ADDRESS = (("ip", "192.0.2.4"),)
DESCRIBE_CLIENT_QUOTAS = 48


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuotaCluster]:
    with QuotaCluster() as started:
        monkeypatch.setenv("KCTL_BOOTSTRAP_SERVER", started.bootstrap)
        yield started


def test_describe_shows_all_quotas_in_order(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {
        ADDRESS: {"connection_creation_rate": 5.0},
        ANY_USER: {"request_percentage": 12.5},
        ALICE_APP: {"producer_byte_rate": 2.0, "consumer_byte_rate": 1.0},
    }
    ran = kctl("quotas describe")
    assert (ran.status, ran.rows) == (
        ExitStatus.DONE,
        [
            ["<default>", "-", "-", "request_percentage", "12.5"],
            ["alice", "app", "-", "consumer_byte_rate", "1"],
            ["alice", "app", "-", "producer_byte_rate", "2"],
            ["-", "-", "192.0.2.4", "connection_creation_rate", "5"],
        ],
    )
    assert kctl("quotas describe --default-user --format json").document == [
        {"entity": {"user": None}, "quotas": {"request_percentage": 12.5}}
    ]


def test_describe_of_a_user_includes_the_clients_of_the_user(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {ALICE: {"producer_byte_rate": 1.0}, ALICE_APP: {"producer_byte_rate": 2.0}}
    assert [row[:2] for row in kctl("quotas describe --user alice").rows] == [["alice", "app"], ["alice", "-"]]
    assert [row[:2] for row in kctl("quotas describe --user alice --client-id app").rows] == [["alice", "app"]]
    assert kctl("quotas describe --user bob").rows == []


def test_a_throttled_command_warns(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.throttle_ms = 250
    for line in ("quotas describe", "quotas check --user alice"):
        ran = kctl(line)
        assert (ran.status, "250 ms" in ran.err) == (ExitStatus.DONE, True)


def test_alter_sets_and_removes_and_keeps_the_others(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {ALICE_APP: {"producer_byte_rate": 5.0, "request_percentage": 10.0, "consumer_byte_rate": 7.0}}
    ran = kctl("quotas alter --user alice --client-id app --producer-rate 1MB --delete request_percentage --yes")
    assert (ran.status, ran.rows) == (
        ExitStatus.DONE,
        [
            ["alice", "app", "-", "producer_byte_rate", "5", "1048576", "altered", "-", "-"],
            ["alice", "app", "-", "request_percentage", "10", "-", "altered", "-", "-"],
        ],
    )
    assert cluster.quotas[ALICE_APP] == {"producer_byte_rate": 1_048_576.0, "consumer_byte_rate": 7.0}


@pytest.mark.parametrize(
    ("options", "entity", "key", "value"),
    [
        ("--default-user --consumer-rate 2KB", ANY_USER, "consumer_byte_rate", 2048.0),
        ("--user alice --request-percentage 50.5", ALICE, "request_percentage", 50.5),
        ("--default-client-id --mutation-rate 0.5", (("client-id", None),), "controller_mutation_rate", 0.5),
        ("--ip 192.0.2.4 --connection-rate 20", ADDRESS, "connection_creation_rate", 20.0),
        ("--default-ip --connection-rate 0", (("ip", None),), "connection_creation_rate", 0.0),
    ],
)
def test_alter_sets_quotas_of_every_kind_of_entity(
    kctl: Kctl, cluster: QuotaCluster, options: str, entity: tuple[tuple[str, str | None], ...], key: str, value: float
) -> None:
    assert kctl(f"quotas alter {options} --yes").status == ExitStatus.DONE
    assert cluster.quotas == {entity: {key: value}}


def test_a_dry_run_and_a_missing_confirmation_change_nothing(kctl: Kctl, cluster: QuotaCluster) -> None:
    ran = kctl("quotas alter --user alice --producer-rate 5 --dry-run")
    assert ran.rows == [["alice", "-", "-", "producer_byte_rate", "-", "5", "would be altered", "-", "-"]]
    assert kctl("quotas alter --user alice --producer-rate 5").status == ExitStatus.REFUSED
    assert cluster.quotas == {}
    assert [request.validate_only for _, request in cluster.requested(AlterClientQuotasRequest)] == [True]


def test_what_the_broker_refuses_is_a_row_with_its_error(kctl: Kctl, cluster: QuotaCluster) -> None:
    ran = kctl("configs alter user alice --set producer_byte_rate=-5")
    assert (ran.status, ran.rows[0][6:]) == (
        ExitStatus.FAILED,
        ["-", "INVALID_REQUEST", "A quota must not be negative."],
    )


def test_a_broker_without_quota_requests_is_reported(kctl: Kctl, cluster: QuotaCluster) -> None:
    del cluster.versions[DESCRIBE_CLIENT_QUOTAS]
    ran = kctl("quotas describe")
    assert (ran.status, "before Kafka 2.6" in ran.err) == (ExitStatus.FAILED, True)


@for_rows(
    "line",
    [
        "quotas alter --producer-rate 5 --yes",
        "quotas alter --user alice --yes",
        "quotas alter --user alice --default-user --producer-rate 5 --yes",
        "quotas alter --user alice --producer-rate 5 --delete producer_byte_rate --yes",
        "quotas alter --user alice --connection-rate 5 --yes",
        "quotas alter --ip 192.0.2.4 --producer-rate 5 --yes",
        "quotas alter --ip 192.0.2.4 --user alice --connection-rate 5 --yes",
        "quotas alter --user alice --producer-rate fast --yes",
        "quotas alter --user alice --request-percentage -1 --yes",
        "quotas describe --ip 192.0.2.4 --client-id app",
        "configs alter user alice --set nope=1",
        "configs alter user alice --append producer_byte_rate=1",
        "configs alter user alice --set producer_byte_rate=fast",
        "configs alter client app --client other --set producer_byte_rate=1",
        "configs alter user alice --client * --set producer_byte_rate=1",
    ],
)
def test_contradictory_or_incomplete_lines_are_usage_errors(kctl: Kctl, cluster: QuotaCluster, line: str) -> None:
    assert kctl(line).status == ExitStatus.USAGE
    assert cluster.requests == []


def test_check_shows_which_quota_applies_and_which_it_overrides(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {
        ALICE: {"producer_byte_rate": 2.0},
        ALICE_APP: {"producer_byte_rate": 1.0},
        (("client-id", None),): {"consumer_byte_rate": 9.0},
        (("ip", None),): {"connection_creation_rate": 4.0},
        ADDRESS: {"connection_creation_rate": 3.0},
    }
    items = kctl("quotas check --user alice --client-id app --ip 192.0.2.4 --format json").document
    assert {item["quota"]: (item["value"], item["overridden"]) for item in items} == {
        "producer_byte_rate": (1, ["user alice: 2"]),
        "consumer_byte_rate": (9, []),
        "request_percentage": (None, []),
        "controller_mutation_rate": (None, []),
        "connection_creation_rate": (3, ["ip (default): 4"]),
    }
    assert kctl("quotas check --ip 10.0.0.1").rows[-1][:3] == ["connection_creation_rate", "4", "ip (default)"]
    cluster.quotas[("ip", "2001:db8:0:0:0:0:0:1"),] = {"connection_creation_rate": 7.0}
    assert kctl("quotas check --ip 2001:db8::1").rows[-1][1] == "7"


@pytest.mark.parametrize("ip", ["zz", "192.0.2", "localhost"])
def test_check_refuses_what_is_not_an_address(kctl: Kctl, cluster: QuotaCluster, ip: str) -> None:
    ran = kctl(f"quotas check --ip {ip}")
    assert (ran.status, cluster.requests) == (ExitStatus.USAGE, [])
    assert f"--ip takes an IP address, such as 192.0.2.4, not '{ip}'" in ran.err


def test_configs_alter_sets_quotas_of_users_clients_and_ips(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {ALICE_APP: {"producer_byte_rate": 5.0}}
    ran = kctl("configs alter user alice --client app --set producer_byte_rate=6 --set request_percentage=1.5")
    assert ran.rows == [
        ["user", "alice/clients/app", "producer_byte_rate", "set", "5", "6", "altered", "-", "-"],
        ["user", "alice/clients/app", "request_percentage", "set", "-", "1.5", "altered", "-", "-"],
    ]
    assert kctl("configs alter client <default> --set consumer_byte_rate=3").status == ExitStatus.DONE
    assert kctl("configs alter ip 192.0.2.4 --set connection_creation_rate=2").status == ExitStatus.DONE
    assert kctl("configs alter user alice --client app --delete-config producer_byte_rate").rows[0][3:7] == [
        *("delete", "6", "-", "altered")
    ]
    assert cluster.quotas == {
        ALICE_APP: {"request_percentage": 1.5},
        (("client-id", None),): {"consumer_byte_rate": 3.0},
        ADDRESS: {"connection_creation_rate": 2.0},
    }


def test_configs_describe_shows_quotas_and_the_credentials_of_users(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {ALICE: {"producer_byte_rate": 5.0}}
    cluster.scram_users = {"alice": 4096, "bob": 8192}
    rows = kctl("configs describe user").rows
    assert {(row[1], row[2], row[3]) for row in rows} == {
        ("alice", "producer_byte_rate", "5"),
        ("alice", "SCRAM-SHA-256", "iterations=4096"),
        ("bob", "SCRAM-SHA-256", "iterations=8192"),
    }


@pytest.mark.parametrize("name", ["SCRAM-SHA-256", "scram-sha-512"])
def test_configs_alter_with_a_credential_names_the_command_for_it(kctl: Kctl, cluster: QuotaCluster, name: str) -> None:
    ran = kctl(f"configs alter user alice --set {name}=[password=secret]")
    assert (ran.status, "kctl users" in ran.err, "secret" in ran.err) == (ExitStatus.USAGE, True, False)
    assert cluster.requests == []


@for_rows("number", ["nan", "inf", "1e999"])
@for_rows(
    "line",
    [
        "quotas alter --user alice --yes --request-percentage",
        "quotas alter --user alice --yes --mutation-rate",
        "configs alter user alice --set request_percentage=",
    ],
)
def test_infinity_and_nan_are_no_quotas(kctl: Kctl, cluster: QuotaCluster, line: str, number: str) -> None:
    ran = kctl(line + number if line.endswith("=") else f"{line} {number}")
    assert (ran.status, cluster.quotas) == (ExitStatus.USAGE, {})


def test_json_of_an_infinite_quota_which_another_tool_has_set_is_valid(kctl: Kctl, cluster: QuotaCluster) -> None:
    cluster.quotas = {ALICE: {"request_percentage": math.inf}}
    ran = kctl("quotas describe --format json")
    assert ran.out == '[{"entity":{"user":"alice"},"quotas":{"request_percentage":null}}]\n'
    assert kctl("quotas check --user alice --format json").status == ExitStatus.DONE
