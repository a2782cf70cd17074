"""Names inside an export folder.

    DIR/orders/orders+3+00000000000000051200-00000000000000102400.parquet      offsets [51200, 102400) of orders-3
    DIR/_kctl/plans/000000000007.json        what batch 7 will write, recorded before any of its tasks starts
    DIR/_kctl/commits/000000000007.json      what batch 7 wrote and where every partition stands: this is the commit
    DIR/_kctl/lock                           held by the one exporter at work
    DIR/_SUCCESS                             there after the first commit, for old tools that look for it

A data file's name is a pure function of its range, so a task that runs twice writes the same file twice.  `+` cannot
occur in a topic's name.  Readers of Parquet folders skip names that begin with `_` or `.`: that hides the log from
them, and it would hide topics such as __consumer_offsets, which therefore get a leading `+`.

The folders are not in Hive's `topic=orders/partition=3` form: the columns topic and partition are in the files, and
readers disagree about a column that is in both.
"""

from __future__ import annotations

LOG_DIRECTORY = "_kctl"
PLANS = f"{LOG_DIRECTORY}/plans"
COMMITS = f"{LOG_DIRECTORY}/commits"
LOCK = f"{LOG_DIRECTORY}/lock"
SUCCESS = "_SUCCESS"
TEMPORARY_SUFFIX = ".tmp"


def topic_directory(topic: str) -> str:
    """The folder of a topic's data files."""
    return f"+{topic}" if topic.startswith(("_", ".")) else topic


def data_path(topic: str, *, incarnation: int, partition: int, start: int, end: int) -> str:
    """The data file of offsets [start, end).

    A topic that was deleted and created again starts over at offset 0; its incarnation keeps its names apart.
    """
    directory = topic_directory(topic)
    recreated = f"+r{incarnation}" if incarnation else ""
    return f"{directory}/{directory}+{partition}+{start:020d}-{end:020d}{recreated}.parquet"


def batch_name(batch: int) -> str:
    """The file name of a batch's plan and of its commit."""
    return f"{batch:012d}.json"


def batch_number(name: str) -> int | None:
    """The batch that a file in `plans` or `commits` belongs to; None for other files."""
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "json" and stem.isdecimal() else None


def is_temporary(name: str) -> bool:
    """Whether a file is the unfinished work of some attempt."""
    return name.startswith(".") and name.endswith(TEMPORARY_SUFFIX)
