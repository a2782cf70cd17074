"""How Spark is started: on loopback for local masters, unchanged for others."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import ERROR, Py4JNetworkError

from kctl.errors import UsageError
from kctl.tables.engines.session import (
    JVM_FLAGS,
    SparkFailed,
    SparkSettings,
    _death,
    _message,
    _reason_in,
    running_spark,
    silence_py4j,
    spark_properties,
)
from tests.peers.probe import free_port
from tests.rows import for_rows

LOG = Path("/tmp/log4j2.properties")


@pytest.mark.parametrize(
    ("master", "parallelism"), [("local", 1), ("local[3]", 3), ("local[*]", os.cpu_count()), ("spark://h:7077", 1)]
)
def test_parallelism_is_known_for_local_masters(master: str, parallelism: int) -> None:
    assert SparkSettings(master).parallelism == parallelism


def test_a_local_spark_listens_on_loopback_and_tries_dead_workers_again() -> None:
    found = spark_properties(SparkSettings("local[2]"), log_settings=LOG)
    assert found["spark.master"] == "local[2,4]"
    assert spark_properties(SparkSettings("local"), log_settings=LOG)["spark.master"] == "local[1,4]"
    assert spark_properties(SparkSettings("local[*, 2]"), log_settings=LOG)["spark.master"] == "local[*,2]"
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"
    assert "TieredStopAtLevel=1" in found["spark.driver.extraJavaOptions"]
    assert found["spark.ui.enabled"] == "false"


def test_other_masters_decide_about_addresses_and_jvms_get_flags_for_a_short_run() -> None:
    found = spark_properties(SparkSettings("spark://10.0.0.7:7077"), log_settings=LOG, class_archive_option="-XX:A")
    assert found["spark.master"] == "spark://10.0.0.7:7077"
    assert "spark.driver.host" not in found
    assert found["spark.driver.extraJavaOptions"].endswith(f" {JVM_FLAGS} -XX:A")
    assert found["spark.executor.defaultJavaOptions"] == f"{JVM_FLAGS} -XX:A"
    assert "spark.executor.extraJavaOptions" not in found


def test_the_driver_in_a_cluster_gets_its_jvm_flags_from_there() -> None:
    found = spark_properties(SparkSettings("yarn", is_cluster_mode=True))
    assert "spark.driver.extraJavaOptions" not in found
    assert found["spark.executor.defaultJavaOptions"] == JVM_FLAGS


def test_properties_of_the_user_win() -> None:
    settings = SparkSettings("local[2]", {"spark.ui.enabled": "true", "spark.driver.memory": "3g"})
    found = spark_properties(settings, log_settings=LOG)
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.driver.memory"] == "3g"


def test_an_error_of_a_python_worker_is_shown_without_the_java_stack() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):\n"
        '  File "worker.py", line 4327, in invoke_udf\n    run_process()\n'
        "ModuleNotFoundError: No module named 'numpy'\n SQLSTATE: 38000\n\tat org.apache.spark.api\n"
    )
    assert _message(RuntimeError(text)) == "ModuleNotFoundError: No module named 'numpy'"


def test_the_first_meaningful_line_of_a_java_error_is_its_message() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.failJob\n"
    )
    assert _message(RuntimeError(text)) == "org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times"


@pytest.mark.parametrize("wrapper", ["", "x.PythonException: Traceback (most recent call last):\n  File 'worker.py'\n"])
def test_an_error_of_a_task_begins_with_its_host(wrapper: str) -> None:
    reason = 'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory'
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most "
        f"recent failure: Lost task 0.3 in stage 0.0 (TID 6) (10.0.0.7 executor 2): {wrapper}{reason}\n\tat java.base\n"
    )
    assert _message(RuntimeError(text)) == f"on host 10.0.0.7: {reason}"


@for_rows(
    "master",
    [
        "",
        "locl[2]",
        "local[x]",
        "local[2",
        "spark://host",
        "spark://",
        "spark://h:7077,",
        "spark://h:65536",
        "http://h:80",
        "yarn-client",
    ],
)
def test_an_unsupported_master_is_a_usage_error(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark master"):
        SparkSettings(master)


@for_rows(
    "master",
    [
        "local",
        "local[*]",
        "local[4,2]",
        "local-cluster[2,1,1024]",
        "spark://a:7077",
        "spark://a:7077,b:7077",
        "spark://[::1]:7077",
        "yarn",
        "k8s://https://10.0.0.1:6443",
    ],
)
def test_supported_masters_are_accepted(master: str) -> None:
    assert SparkSettings(master).master == master


def test_the_addresses_of_standalone_masters_are_known() -> None:
    assert SparkSettings("spark://a:1,[::1]:2").standalone_addresses == [("a", 1), ("::1", 2)]
    assert SparkSettings("yarn").standalone_addresses == []


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        (SparkSettings("spark://a:1", has_secrets=True), True),
        (SparkSettings("spark://a:1"), False),
        (SparkSettings("local[2]", has_secrets=True), False),
        (SparkSettings("yarn", {"spark.network.crypto.enabled": "true"}, has_secrets=True), False),
        (SparkSettings("yarn", {"spark.ssl.rpc.enabled": "true"}, has_secrets=True), False),
    ],
)
def test_credentials_that_cross_the_network_unencrypted_are_detected(settings: SparkSettings, is_open: bool) -> None:
    assert settings.sends_secrets_openly is is_open
    assert ("spark.io.encryption.enabled" in spark_properties(settings)) is settings.has_secrets


def test_an_unreachable_master_is_named_before_a_jvm_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # a JVM could not be started
    port = free_port()
    with (
        pytest.raises(SparkFailed, match=rf"cannot reach the Spark master spark://127\.0\.0\.1:{port} .*refused"),
        running_spark(SparkSettings(f"spark://127.0.0.1:{port}"), name="test"),
    ):
        pass


def test_a_killed_jvm_is_reported_instead_of_a_refused_connection() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        process.kill()
        assert _death(process, ConnectionRefusedError(111, "Connection refused")).startswith(
            "Spark's Java process was killed by SIGKILL"
        )
    with subprocess.Popen(["false"]) as process:
        assert _death(process, EOFError()) == "Spark's Java process ended with status 1"


def test_an_error_of_a_running_jvm_is_not_reported_as_a_kill() -> None:
    class Py4JJavaError(Exception):
        """As py4j names it."""

    with subprocess.Popen(["sleep", "600"]) as process:
        assert _death(process, Py4JJavaError("Job aborted")) == ""
        assert _death(process, ValueError("ours")) == ""
        process.kill()


def test_warnings_of_the_jvm_are_not_why_it_ended() -> None:
    output = (
        "WARNING: Using incubator modules: jdk.incubator.vector\n"
        "10:20:30 WARN Utils: Your hostname, h, resolves to a loopback address: 127.0.1.1; using 10.0.0.2 instead\n"
        "10:20:30 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address\n"
        ":: loading settings :: url = jar:file:/ivy-2.5.3.jar!/org/apache/ivy/core/settings/ivysettings.xml\n"
        "Ivy Default Cache set to: /ivy/cache\n"
        'Exception in thread "main" org.apache.spark.SparkException: Cluster deploy mode is not applicable\n'
        "\tat org.apache.spark.deploy.SparkSubmit.main\n"
    )
    assert _reason_in(output).startswith(
        'Exception in thread "main" org.apache.spark.SparkException: Cluster deploy mode'
    )
    assert _reason_in("") == ""


def test_a_lost_connection_to_the_jvm_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """py4j logs it with a traceback by the root logger, and raises it as well."""

    class Lost:
        socket = None

        def send_command(self, command: str) -> str:
            raise Py4JNetworkError(command)

        def close(self, reset: bool) -> None:
            pass

    class LosingClient(GatewayClient):  # type: ignore[misc]  # py4j has no types
        def _get_connection(self) -> Lost:
            return Lost()

    root = logging.getLogger()
    before = list(root.filters)
    try:
        silence_py4j()
        silence_py4j()
        assert LosingClient().send_command("x", retry=False) == ERROR
        assert not caplog.records
        logging.getLogger().warning("of another module")
        assert [record.message for record in caplog.records] == ["of another module"]
    finally:
        root.filters[:] = before
