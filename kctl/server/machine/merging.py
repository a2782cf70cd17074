"""Merges the metrics of several brokers into one exposition, each sample with the label `broker`.  Pure.

Prometheus requires that all samples of a family are together, after one description of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

_COMMENTS = ("# HELP ", "# TYPE ", "# UNIT ")

Families = dict[str, tuple[list[str], list[str]]]
"""For the name of each family its description and its samples, as lines."""


def labelled(text: str, broker_id: int) -> Families:
    """The families of one broker's exposition, in either text format, with the label added to each sample.

    Samples without a description before them are left out: the endpoints of kctl write none.
    """
    label = f'broker="{broker_id}"'
    families: Families = {}
    samples: list[str] | None = None
    for line in text.split("\n"):
        if line.startswith(_COMMENTS):
            name = line.split(" ", 3)[2]
            description, samples = families.setdefault(name, ([], []))
            description.append(line)
        elif line and not line.startswith("#") and samples is not None:
            samples.append(_with_label(line, label))
    return families


def merged(brokers: Iterable[Mapping[str, tuple[list[str], list[str]]]]) -> Iterator[bytes]:
    """The text of all families, a piece for each; the description is that of the first broker that has it."""
    found = list(brokers)
    for name in dict.fromkeys(name for families in found for name in families):
        parts = [families[name] for families in found if name in families]
        lines = [*parts[0][0], *(line for _, samples in parts for line in samples), ""]
        yield "\n".join(lines).encode()


def _with_label(line: str, label: str) -> str:
    """A sample is `name value` or `name{labels} value`."""
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        comma = "" if rest.startswith("}") else ","
        return f"{name}{{{label}{comma}{rest}"
    name, _, rest = line.partition(" ")
    return f"{name}{{{label}}} {rest}"
