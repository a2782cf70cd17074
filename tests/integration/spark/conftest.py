"""Exports from kctl's broker and from Apache Kafka; with KCTL_TEST_BOOTSTRAP=HOST:PORT from that broker instead.

Both engines run the same plans, tasks and commits, so that tests about these use one of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kctl.tables.engines.submission import archive_path
from tests.integration.spark.peer import Topic, write_archive
from tests.peers import apache_kafka
from tests.peers.cache import cache_folder
from tests.peers.kctl_broker import kctl_broker

GIVEN = os.environ.get("KCTL_TEST_BOOTSTRAP")


@pytest.fixture(scope="session", autouse=True)
def written_archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path | None]:
    """Exports start with an archive of classes; its path in a folder of its own if this run had to write it."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    if shutil.which("java") is None:
        pytest.skip("java is not on the PATH: install a Java 17 runtime")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(cache_folder() / "spark"))
        kept, written = archive_path(), None
        if not kept.exists():
            written = write_archive(tmp_path_factory.mktemp("warmup"))
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_name(f".{kept.name}.{os.getpid()}.tmp")
            shutil.copyfile(written, unfinished)
            unfinished.replace(kept)
        yield written


@pytest.fixture(scope="session")
def kctl_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of kctl's broker, or of KCTL_TEST_BOOTSTRAP."""
    if GIVEN:
        yield GIVEN
    else:
        with kctl_broker(tmp_path_factory.mktemp("kctl") / "data") as broker:
            yield broker.bootstrap


@pytest.fixture(scope="session")
def apache_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of Apache Kafka's broker, or of KCTL_TEST_BOOTSTRAP."""
    if GIVEN:
        yield GIVEN
    elif reason := apache_kafka.why_not():
        pytest.skip(reason)
    else:
        with apache_kafka.apache_kafka(apache_kafka.OLDEST_JUDGE, tmp_path_factory.mktemp("apache")) as bootstrap:
            yield bootstrap


@pytest.fixture(params=["kctl", "apache"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Both brokers, one after the other."""
    address: str = request.getfixturevalue(f"{request.param}_bootstrap")
    return address


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine of a test, local or spark; most tests name one with `parametrize`."""
    name: str = getattr(request, "param", "spark")
    return name


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, engine: str) -> Callable[..., Topic]:
    """A new topic named after the test."""

    def make(bootstrap: str, partitions: int, suffix: str = "") -> Topic:
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200] + f"-{os.getpid()}{suffix}"
        return Topic(bootstrap, name, partitions, engine)

    return make
