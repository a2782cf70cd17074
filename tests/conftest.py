"""Settings for all tests: skips are failures where all peers are required, Hypothesis has no deadlines, and servers end
with the tests.

Continuous integration uses the same examples each time, so that a failure is caused by the change; elsewhere Hypothesis
generates new ones.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

from kctl.output.log_lines import FoldingHandler
from tests.peers import leftovers, signals
from tests.property.examples import share_of

EVERYTHING_IS_REQUIRED = os.environ.get("CI") == "true" or os.environ.get("KCTL_REQUIRE_ALL") == "1"

signals.restore()
leftovers.end_with_this_process()

gc.disable()
"""While tests are collected: what is imported and created then stays until the end."""


def pytest_collection_finish() -> None:
    """Garbage is collected again, but not searched for among a million objects of modules and tests, which would take
    half a second in each test that collects it.
    """
    gc.freeze()
    gc.enable()


settings.register_profile(
    "kctl",
    deadline=None,
    print_blob=True,
    max_examples=share_of(100),
    suppress_health_check=[HealthCheck.too_slow],  # It measures the load of the machine.
)
settings.register_profile("ci", parent=settings.get_profile("kctl"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "kctl")


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands read neither the profiles nor the cached names of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("xdg")
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.delenv("KCTL_PROFILE", raising=False)
        yield


@pytest.fixture(autouse=True)
def _no_log_handlers_of_commands() -> Iterator[None]:
    """A server that a test starts in this process logs to a stream that is closed after the test."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, FoldingHandler)]:
        root.removeHandler(handler)
        handler.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turns skipped tests into failures where all peers are required."""
    report = yield
    return _without_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turns the skip of a whole module into a failure, where skips are failures."""
    report = yield
    return _without_skip(report)


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def _without_skip(report: Report) -> Report:
    is_expected_failure = hasattr(report, "wasxfail")
    if EVERYTHING_IS_REQUIRED and report.skipped and not is_expected_failure:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"not allowed to skip where CI=true or KCTL_REQUIRE_ALL=1: {reason}"
    return report
