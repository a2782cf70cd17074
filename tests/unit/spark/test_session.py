"""How Spark is started: on loopback where it is local, and left alone where it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kctl.spark.session import SparkSettings, _configuration, _message

LOG = Path("/tmp/log4j2.properties")


@pytest.mark.parametrize(
    ("master", "parallelism"), [("local", 1), ("local[3]", 3), ("local[*]", os.cpu_count()), ("spark://h:7077", 1)]
)
def test_parallelism_is_known_for_local_masters(master: str, parallelism: int) -> None:
    assert SparkSettings(master).parallelism == parallelism


def test_a_local_spark_listens_on_loopback_and_tries_dead_workers_again() -> None:
    found = _configuration(SparkSettings("local[2]"), "export", LOG)
    assert found["spark.master"] == "local[2,4]"
    assert _configuration(SparkSettings("local"), "export", LOG)["spark.master"] == "local[1,4]"
    assert _configuration(SparkSettings("local[*, 2]"), "export", LOG)["spark.master"] == "local[*,2]"
    assert found["spark.driver.bindAddress"] == found["spark.driver.host"] == "127.0.0.1"
    assert "TieredStopAtLevel=1" in found["spark.driver.extraJavaOptions"]
    assert found["spark.ui.enabled"] == "false"


def test_other_masters_decide_about_addresses_and_jvm_flags() -> None:
    found = _configuration(SparkSettings("spark://10.0.0.7:7077"), "export", LOG)
    assert found["spark.master"] == "spark://10.0.0.7:7077"
    assert "spark.driver.host" not in found
    assert "TieredStopAtLevel" not in found["spark.driver.extraJavaOptions"]


def test_properties_of_the_user_win() -> None:
    settings = SparkSettings("local[2]", {"spark.ui.enabled": "true", "spark.driver.memory": "3g"})
    found = _configuration(settings, "export", LOG)
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.driver.memory"] == "3g"


def test_an_error_of_a_python_worker_is_told_without_the_java_around_it() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):\n"
        '  File "worker.py", line 4327, in invoke_udf\n    run_process()\n'
        "ModuleNotFoundError: No module named 'numpy'\n SQLSTATE: 38000\n\tat org.apache.spark.api\n"
    )
    assert _message(RuntimeError(text)) == "ModuleNotFoundError: No module named 'numpy'"


def test_the_first_telling_line_of_a_java_error_is_its_message() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.failJob\n"
    )
    assert _message(RuntimeError(text)) == "org.apache.spark.SparkException: Job aborted: Task 0 failed 4 times"
