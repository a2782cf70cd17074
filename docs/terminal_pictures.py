"""Pictures of programs for the documentation: `python -m docs.terminal_pictures FOLDER` runs them and writes SVG files.

The commands are run on a pseudo-terminal against brokers that this program starts, and what the terminal shows is drawn
by rich.  `first-steps.svg`, which the README shows, is the same at each run and is the only one in version control:
`./dev docs` writes it into docs/pictures, the others into build/pictures.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.text import Text

from tests.peers import probe
from tests.peers.forked_kctl import write_program
from tests.peers.kctl_broker import KctlBroker, kctl_broker
from tests.peers.process import Process

README_PICTURE = "first-steps.svg"
FIRST_STEPS = (
    "kctl broker start --detach",
    "kctl topics create orders --partitions 3",
    r"printf 'ann:3 apples\nbob:1 pear\nann:2 plums\n' | kctl produce orders --key-separator :",
    r"kctl consume orders --key ann -f 'partition %p, offset %o: %v\n'",
    "kctl cluster health",
    "kctl broker stop",
)
BROKERS = 3
GROUPS = ("billing", "search-index", "nightly-report")
RECORDS_PER_S = 2_000
TIMEOUT_S = 120
AUDIT_AGE_S = 3_300
"""Less than the retention of an hour by so much that no record expires meanwhile."""
_HOME = "\x1b[H"
_TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As that of rich, without fonts from elsewhere."""


def main(folder: Path) -> None:
    """Write all pictures into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {README_PICTURE: first_steps(), **cluster_pictures()}
    for name, text in pictures.items():
        (folder / name).write_text(text, encoding="utf-8")


def svg(text: str, *, columns: int, title: str) -> str:
    """Return a picture of a terminal that shows `text`, which may have sequences for colours."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text), no_wrap=True, crop=True)
    drawn = console.export_svg(title=title, code_format=_TEMPLATE, unique_id="kctl")
    return "\n".join(line.rstrip() for line in drawn.splitlines() if line.strip()) + "\n"


def on_terminal(
    command: Sequence[str],
    *,
    columns: int,
    lines: int,
    environment: dict[str, str] | None = None,
    is_complete: Callable[[str], bool] = lambda _: False,
) -> str:
    """Run a command; returns what it writes to a terminal of this size, until it ends or the text is complete."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
    variables.pop("NO_COLOR", None)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=variables, start_new_session=True)
    os.close(slave)
    output = b""
    deadline_s = time.monotonic() + TIMEOUT_S
    with contextlib.suppress(OSError):  # EIO when the command has ended
        while (part := os.read(master, 65536)) and not is_complete(output.decode(errors="replace")):
            output += part
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{' '.join(command)} does not show what it should within {TIMEOUT_S} s")
    process.terminate()
    process.wait()
    os.close(master)
    return output.decode().replace("\r\n", "\n")


def first_steps() -> str:
    """Type what a first user types: a broker, a topic, records, the health of the cluster."""
    with tempfile.TemporaryDirectory(prefix="kctl-home-") as home:
        port = str(probe.free_port())
        programs = write_program(Path(home) / "bin")
        environment = {
            "HOME": home,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KCTL_BOOTSTRAP_SERVER": f"127.0.0.1:{port}",
            **dict.fromkeys(("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), ""),
        }
        shown = []
        try:
            for line in FIRST_STEPS:
                typed = line.replace("start --detach", f"start --detach --port {port}")
                output = on_terminal(["bash", "-c", typed], columns=100, lines=40, environment=environment)
                output = output.replace(home, "~").replace(f" --bootstrap-server 127.0.0.1:{port}", "")
                output = output.replace(port, "9092")
                shown.append(f"\x1b[32m$\x1b[0m \x1b[1m{line}\x1b[0m\n{without_changing_values(output)}")
        finally:
            on_terminal(["kctl", "broker", "stop"], columns=80, lines=24, environment=environment)
    return svg("".join(shown), columns=100, title="kctl")


def without_changing_values(output: str) -> str:
    """Return the output of `kctl cluster health` without the id of the cluster, which differs at each run."""
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("cluster-id"))


def cluster_pictures() -> dict[str, str]:
    """`kctl top`, `kctl groups lag` and `kctl cluster health` on three brokers under load."""
    with tempfile.TemporaryDirectory(prefix="kctl-pictures-") as folder, cluster(Path(folder)) as (brokers, metrics):
        bootstrap = brokers[0].bootstrap
        with load(bootstrap):
            pictures = {
                f"top{suffix}.svg": svg(
                    top_screen(bootstrap, metrics, columns, lines), columns=columns, title="kctl top"
                )
                for suffix, columns, lines in (("", 132, 26), ("-narrow", 80, 24))
            }
            pictures["lag.svg"] = command_picture("kctl groups lag --sort verdict", bootstrap)
        brokers[-1].stop()
        pictures["health.svg"] = command_picture("kctl cluster health", bootstrap, lines_max=16)
        pictures["topic.svg"] = command_picture("kctl topics describe payments", bootstrap)
    return pictures


def command_picture(line: str, bootstrap: str, *, lines_max: int = 40) -> str:
    """Return the picture of a command and its output, of which it has at most `lines_max` lines."""
    command = [sys.executable, "-m", *line.split(), "--bootstrap-server", bootstrap]
    output = on_terminal(command, columns=110, lines=40).rstrip().splitlines()
    if len(output) > lines_max:
        output[lines_max:] = ["..."]
    return svg("\n".join([f"\x1b[32m$\x1b[0m \x1b[1m{line}\x1b[0m", *output]), columns=110, title=line)


def top_screen(bootstrap: str, metrics: Sequence[str], columns: int, lines: int) -> str:
    """Return the last screen of `kctl top`, when all values are known."""
    command = [sys.executable, "-m", "kctl", "top", "--interval", "2s", "--bootstrap-server", bootstrap, *metrics]

    def is_complete(output: str) -> bool:
        screens = output.split(_HOME)
        rows = [line.split() for line in screens[-2].splitlines()] if len(screens) > 2 else []
        groups = [cells for cells in rows if cells and cells[0].endswith(GROUPS)]
        return len(groups) == len(GROUPS) and all("-" not in cells for cells in groups) and "LOSING" in screens[-2]

    output = on_terminal(command, columns=columns, lines=lines, is_complete=is_complete)
    return output.split(_HOME)[-2].rstrip()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[list[KctlBroker], list[str]]]:
    """Three brokers, and the options that name their metrics."""
    port = probe.free_port()
    words = [sys.executable, "-m", "kctl", "broker", "zookeeper-start", "--data-dir", str(folder / "zookeeper")]
    service = Process("zookeeper", [*words, "--port", str(port)], log=folder / "zookeeper.log")
    with contextlib.ExitStack() as stack:
        stack.callback(service.stop)
        service.wait_until(lambda: probe.accepts(f"127.0.0.1:{port}"), timeout_s=TIMEOUT_S)
        brokers: list[KctlBroker] = []
        options: list[str] = []
        for broker_id in range(BROKERS):
            metrics_port = probe.free_port()
            properties = {
                "broker.id": str(broker_id),
                "metrics.port": str(metrics_port),
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
            }
            data = folder / f"broker-{broker_id}"
            brokers.append(stack.enter_context(kctl_broker(data, properties=properties, zookeeper=f"127.0.0.1:{port}")))
            options += ["--metrics", f"{broker_id}=127.0.0.1:{metrics_port}"]
        yield brokers, options


@contextlib.contextmanager
def load(bootstrap: str) -> Iterator[None]:
    """Run producers, a group that keeps up and one that does not, until the end of the block."""
    for topic, partitions in (("orders", 6), ("payments", 3), ("clicks", 12)):
        kctl("topics", "create", topic, "--partitions", str(partitions), "--bootstrap-server", bootstrap)
    leave_unread(bootstrap)
    is_over = threading.Event()
    readers = (("billing", 1_000), ("search-index", 200))
    threads = [threading.Thread(target=produce, args=(bootstrap, is_over))]
    threads += [threading.Thread(target=consume, args=(bootstrap, is_over, *reader)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def leave_unread(bootstrap: str) -> None:
    """Create a group without members, whose unread records are nearly as old as the limit of their topic."""
    at = ("--bootstrap-server", bootstrap)
    kctl("topics", "create", "audit", "--partitions", "1", "--set", "retention.ms=3600000", *at)
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(250):
        producer.produce("audit", b"x" * 300, timestamp=round((time.time() - AUDIT_AGE_S) * 1000))
    producer.flush(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nightly-report", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("audit", 0, 0)], asynchronous=False)
    consumer.close()


def produce(bootstrap: str, is_over: threading.Event) -> None:
    """Produce to three topics until the event is set."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    while not is_over.wait(0.1):
        for topic, share in (("orders", 2), ("payments", 5), ("clicks", 4)):
            for _ in range(RECORDS_PER_S // 10 // share):
                producer.produce(topic, b"x" * 300)
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def consume(bootstrap: str, is_over: threading.Event, group: str, records: int) -> None:
    """Read at most `records` at a time, four times a second, until the event is set."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
        }
    )
    consumer.subscribe(["orders"])
    while not is_over.wait(0.25):
        consumer.consume(records, timeout=0.5)
    consumer.close()


def kctl(*words: str) -> None:
    """Run a command of kctl; raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "kctl", *words], check=True, capture_output=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
