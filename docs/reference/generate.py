"""Writes the generated pages from the code; with --check it only reports which are out of date.  See ./dev docs."""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from docs.reference.config_page import config_reference
from kctl.client.properties.table import PROPERTIES
from kctl.commands.frame.help.documentation import cli_reference, write_man_pages
from kctl.commands.frame.help.text import summary_of
from kctl.commands.frame.output.json_schema import schema_of
from kctl.commands.frame.output.shown import shown_by
from kctl.commands.frame.root import all_commands
from kctl.config.subjects.versions import KAFKA_RELEASES
from kctl.limits import LIMITS, Limit, Subject
from kctl.metrics.definitions import Definition, Dialect, series_names
from kctl.migration.check.kinds import KINDS
from kctl.migration.target.property_table import PROPERTIES as TARGET_PROPERTIES
from kctl.migration.target.property_table import rules_of
from kctl.output.documents import json_text
from kctl.protocol.registry import all_apis
from kctl.server.broker.releases import ServedVersions, api_names, versions_of_release
from kctl.server.metrics.catalogue import DEFINITIONS

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = "tests/golden/schemas"
BUILD = ROOT / "build/reference"
"""Where `./dev docs` writes what is not under version control: the help of the commands in other formats."""
KAFKA_OPTIONS = ROOT / "docs/reference/kafka-tool-options.tsv"
"""The options that Kafka's tools print, written by tests/integration/cli/test_kafka_tool_options.py."""
ANY = "*"
"""In kafka-tools.tsv, as a tool: of all tools; as an option: all options of the tool."""
NONE = "none: "
"""In kafka-tools.tsv, what has no equivalent begins with this; the reason follows."""
_TABLE_START = "<!-- limits: written by ./dev docs -->\n"
_TABLE_END = "<!-- end of limits -->\n"


OUTSIDE_THE_BROKER = frozenset(
    {Subject.NAMED_FILES, Subject.COMMANDS, Subject.REPORTS, Subject.EXPORTS, Subject.TESTS, Subject.SCHEMA_REGISTRY}
)
"""Subjects of bounds that have a page of their own."""


def limits_tables(page: str, *, of_broker: bool) -> str:
    """`page` with the tables of bounds between its two markers replaced by the present ones."""
    before, _, rest = page.partition(_TABLE_START)
    _, _, after = rest.partition(_TABLE_END)
    order = {what: number for number, what in enumerate(_declared_bounds())}
    tables = "\n".join(
        _table(subject.value, sorted(limits, key=lambda limit: order[limit.what]))
        for subject, limits in LIMITS.items()
        if limits and (subject not in OUTSIDE_THE_BROKER) is of_broker
    )
    return f"{before}{_TABLE_START}\n{tables}\n{_TABLE_END}{after}"


def _declared_bounds() -> Iterator[str]:
    """Yield what each bound limits, in the order of the modules and of the lines; imports the modules with bounds."""
    for path in sorted((ROOT / "kctl").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == "limits.py" or "from kctl.limits import" in text:
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in ast.walk(ast.parse(text)):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Name)
                    and node.func.id in {"bound", "configured"}
                ):
                    what = node.args[1 if node.func.id == "bound" else 2]
                    assert isinstance(what, ast.Constant)
                    assert isinstance(what.value, str)
                    yield what.value


def _table(subject: str, limits: Iterable[Limit]) -> str:
    rows = "".join(f"| {limit.what} | {_bound(limit)} | {limit.on_excess} |\n" for limit in limits)
    return f"## {subject}\n\n| bounded | bound | on excess |\n|---|---|---|\n{rows}"


def _bound(limit: Limit) -> str:
    if isinstance(limit.value, int):
        return f"{limit.value:,} {limit.unit}"
    return f"`{limit.value}` (default {limit.unit})"


def api_tables(page: str) -> str:
    """`page` with the table of the APIs of Kafka 4.3.1 replaced by the present one."""
    newest = KAFKA_RELEASES[-1]
    served = {api.key: ServedVersions(has_topic_ids=True).of(api) for api in all_apis().values()}
    notes = kafka_api_notes()
    lines = [f"| key | API | Kafka {newest} | served | what a client sees otherwise |", "|---|---|---|---|---|"]
    for key, versions in versions_of_release(newest).items():
        ours = served.get(key, range(0))
        note = notes.get(key, "")
        lines.append(f"| {key} | {api_names()[key]} | {_range(versions)} | {_range(ours)} | {note or '-'} |")
    return _between(page, "APIs", "\n".join(lines) + "\n")


def kafka_api_notes() -> dict[int, str]:
    """Return the rows of kafka-apis.tsv: what a client sees of an API that is not wholly served, by its key."""
    lines = (ROOT / "docs/reference/kafka-apis.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {int(key): note for key, _, note in (line.split("\t") for line in lines)}


def _range(versions: range) -> str:
    if not versions:
        return "-"
    return str(versions[0]) if len(versions) == 1 else f"{versions[0]}-{versions[-1]}"


class Query(NamedTuple):
    """A metric that public dashboards and alert rules query."""

    metric: str
    naming: str
    """The dialect of the dashboards, or all."""
    labels: frozenset[str]
    reason: str
    """Why a broker does not have it; empty if it does."""


def dashboard_queries() -> list[Query]:
    """Return the rows of dashboard-queries.tsv."""
    lines = (ROOT / "docs/reference/dashboard-queries.tsv").read_text(encoding="utf-8").splitlines()[1:]
    cells = (line.split("\t") for line in lines)
    return [
        Query(metric, naming, frozenset(filter(None, labels.split(","))), why) for metric, naming, labels, why in cells
    ]


class Panel(NamedTuple):
    """A panel of a public dashboard, or a metric that it queries where its panels are not known by name."""

    dashboard: str
    panel: str
    metrics: tuple[str, ...]


NOT_OF_A_BROKER = {
    "container_": "of the container runtime",
    "kubelet_": "of Kubernetes",
    "jvm_": "there is no JVM; see process_resident_memory_bytes and python_gc_*",
    "up": "of Prometheus itself, which has it for every target",
}
"""Why a broker does not have metrics with these prefixes."""


def dashboard_panels() -> list[Panel]:
    """Return the rows of dashboard-panels.tsv."""
    lines = (ROOT / "docs/reference/dashboard-panels.tsv").read_text(encoding="utf-8").splitlines()[1:]
    cells = (line.split("\t") for line in lines)
    return [Panel(dashboard, panel, tuple(metrics.split(","))) for dashboard, panel, metrics in cells]


def source_of(metric: str) -> str:
    """Return the MBean of a metric that a dashboard queries, `process`, or why a broker does not have it; empty if
    unknown.
    """
    if metric.startswith("process_"):
        return "process"
    for prefix, reason in NOT_OF_A_BROKER.items():
        if metric.startswith(prefix):
            return f"not: {reason}"
    reasons = {query.metric: query.reason for query in dashboard_queries() if query.reason}
    if metric in reasons:
        return f"not: {reasons[metric]}"
    for definition in DEFINITIONS:
        if any(metric in samples_of(definition, dialect) for dialect in Dialect):
            return _source(definition).removeprefix(f"{definition.domain}, ")
    return ""


def samples_of(definition: Definition, dialect: Dialect) -> dict[str, frozenset[str]]:
    """Return the names of a metric's samples, with their labels."""
    labels_by_sample: dict[str, frozenset[str]] = {}
    labels = frozenset(definition.labels)
    for name, kind in series_names(definition, dialect):
        if kind == "summary":
            labels_by_sample |= {name: labels | {"quantile"}, f"{name}_count": labels}
        else:
            labels_by_sample[f"{name}_total" if kind == "counter" else name] = labels
    return labels_by_sample


def metric_tables(page: str) -> str:
    """`page` with the table of metrics replaced by the present one."""
    return _between(page, "metrics", _table_of_metrics())


def dashboard_tables(page: str) -> str:
    """`page` with the tables of panels and of dashboards' queries replaced by the present ones."""
    page = _between(page, "dashboard panels", _table_of_panels())
    return _between(page, "dashboard queries", _table_of_queries())


def migration_tables(page: str) -> str:
    """`page` with the tables of problems and of properties that `kctl migrate check` knows."""
    page = _between(page, "problems", _table_of_problems())
    return _between(page, "properties", _table_of_target_properties())


def _table_of_problems() -> str:
    lines = ["| kind | severity | blocks | meaning | remedy |", "|---|---|---|---|---|"]
    for kind in KINDS.values():
        blocks = ", ".join(sorted(kind.blocks)) or "-"
        lines.append(f"| {kind.name} | {kind.severity.label} | {blocks} | {kind.meaning} | {kind.remedy} |")
    return "\n".join(lines) + "\n"


def _table_of_target_properties() -> str:
    lines = ["| property | of a | target | rule |", "|---|---|---|---|"]
    for scope, rows in TARGET_PROPERTIES.items():
        for row in rows.values():
            lines += [f"| `{row.name}` | {scope} | {release} | {rule} |" for release, rule in rules_of(row)]
    return "\n".join(lines) + "\n"


def _between(page: str, what: str, table: str) -> str:
    start, end = f"<!-- {what}: written by ./dev docs -->\n", f"<!-- end of {what} -->\n"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{table}\n{end}{after}"


def _table_of_metrics() -> str:
    lines = ["| metric (naming jmx) | MBean | labels | unit | meaning |", "|---|---|---|---|---|"]
    for definition in DEFINITIONS:
        names = ", ".join(f"`{name}`" for name in samples_of(definition, Dialect.JMX) if not name.endswith("s_count"))
        labels = ", ".join(definition.labels) or "-"
        lines.append(f"| {names} | {_source(definition)} | {labels} | {definition.unit} | {definition.doc} |")
    return "\n".join(lines) + "\n"


def _source(definition: Definition) -> str:
    """Return the name of the MBean, or kafka_exporter."""
    if definition.domain == "kafka":
        return "kafka_exporter"
    return f"{definition.domain}, {definition.type}, {definition.name}"


def _table_of_queries() -> str:
    mbeans = {
        name: _source(definition).partition(", ")[2] or _source(definition)
        for definition in DEFINITIONS
        for dialect in Dialect
        for name in samples_of(definition, dialect)
    }
    lines = ["| queried metric | naming | MBean, or why not |", "|---|---|---|"]
    for query in dashboard_queries():
        source = f"not: {query.reason}" if query.reason else mbeans.get(query.metric, "MISSING")
        lines.append(f"| `{query.metric}` | {query.naming} | {source} |")
    return "\n".join(lines) + "\n"


def _table_of_panels() -> str:
    lines = ["| dashboard | panel, or queries | metrics | shown from, or why not |", "|---|---|---|---|"]
    for panel in dashboard_panels():
        metrics = ", ".join(f"`{metric}`" for metric in panel.metrics)
        sources = "; ".join(dict.fromkeys(source_of(metric) or "MISSING" for metric in panel.metrics))
        lines.append(f"| {panel.dashboard} | {panel.panel} | {metrics} | {sources} |")
    return "\n".join(lines) + "\n"


class KafkaOption(NamedTuple):
    """An option of one of Kafka's tools; with an empty `option`, the tool itself."""

    tool: str
    """With its subcommand, if it has one."""
    option: str
    versions: tuple[str, ...]
    """The versions of Kafka that have it."""


def kafka_options() -> list[KafkaOption]:
    """Return the rows of kafka-tool-options.tsv."""
    cells = (line.split("\t") for line in KAFKA_OPTIONS.read_text(encoding="utf-8").splitlines()[1:])
    return [KafkaOption(tool, option, tuple(versions.split(" "))) for tool, option, versions in cells]


@functools.cache
def kctl_equivalents() -> dict[tuple[str, str], str]:
    """Return the rows of kafka-tools.tsv: tool and option, and kctl's command line, or `none: ` with the reason."""
    lines = (ROOT / "docs/reference/kafka-tools.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {(tool, option): kctl for tool, option, kctl in (line.split("\t") for line in lines)}


def equivalent_row(tool: str, option: str) -> tuple[str, str] | None:
    """Return the row of kafka-tools.tsv that applies to an option: its own, its tool's, or that of all tools."""
    keys = ((tool, option), (tool, ANY), (ANY, option))
    return next((key for key in keys if key in kctl_equivalents()), None)


KAFKA_TOOL_PAGES = {
    "reference/kafka-tools-a-to-j.md": ("", "kafka-k"),
    "reference/kafka-tools-k-to-z.md": ("kafka-k", "~"),
}
"""Each page of Kafka's tools, with the first name on it and the first name after it."""


def _overview_of_kafkas_tools() -> str:
    """Return the options that mean the same for all tools, and for each tool what it is with kctl."""
    lines = ["## Options of many tools", "", "| option | kctl |", "|---|---|"]
    lines += [f"| `{option}` | {_equivalent(ANY, option)} |" for tool, option in kctl_equivalents() if tool == ANY]
    lines += ["", "## Tools", "", "| tool | kctl |", "|---|---|"]
    for tool in dict.fromkeys(option.tool for option in kafka_options()):
        (page,) = (page for page, (start, end) in KAFKA_TOOL_PAGES.items() if start <= tool < end)
        lines.append(f"| [{tool}]({page}#{tool.replace(' ', '-').lower()}) | {_equivalent(tool, '')} |")
    return "\n".join(lines) + "\n"


def _sections_of_kafkas_tools(page: str) -> str:
    """For each tool on the page, what it is with kctl and its options but those of many tools."""
    start, end = KAFKA_TOOL_PAGES[page]
    options_on_page = [option for option in kafka_options() if start <= option.tool < end]
    lines: list[str] = []
    for tool, group in itertools.groupby(options_on_page, key=lambda option: option.tool):
        whole, *options = group
        lines += [f"## {tool}", "", f"Kafka {', '.join(whole.versions)}. {_equivalent(tool, '')}", ""]
        own = [option for option in options if (tool, option.option) in kctl_equivalents()]
        if own:
            lines += ["| option | versions | kctl |", "|---|---|---|"]
            for option in own:
                versions = "all" if option.versions == whole.versions else ", ".join(option.versions)
                lines.append(f"| `{option.option}` | {versions} | {_equivalent(tool, option.option)} |")
            lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _page_of_kafkas_tools(page: str, text: str) -> str:
    """`text` of the page with the tables of its tools replaced by the present ones."""
    return _between(text, "options of Kafka's tools", _sections_of_kafkas_tools(page))


def _equivalent(tool: str, option: str) -> str:
    row = equivalent_row(tool, option)
    text = kctl_equivalents()[row] if row else "MISSING"
    if text.startswith(NONE):
        return f"None: {text.removeprefix(NONE)}"
    command, _, remark = text.partition("; ")
    return f"`{command}`" + (f"; {remark}" if remark else "")


_CLIENT_PROPERTIES_HEAD = """\
# Client properties

All properties of Apache Kafka's admin, consumer and producer clients, 2.8.2 to 4.3.1, and what kctl does with them: in
the file of `--command-config`, in a profile, in the `command.config` of the Spark source and in `from_properties` of
the Python client. This page is generated from `kctl/client/properties/table.py` by `./dev docs`; do not edit it by
hand.

- A value is checked as Kafka checks it: a command checks the properties of the admin client, one that reads records
  those of the consumer, one that writes records those of the producer. Exit status 2 names the property.
- *Obeyed*: the third column has the commands. An option of the command line takes precedence. Defaults in parentheses
  differ from Kafka's; kctl's own options show theirs.
- *No meaning here*: accepted, since existing files contain it; the reason follows.
- *Refused*: ignoring it would change what a command does; the remedy follows. An empty value is accepted.
- Properties of another client (A admin, C consumer, P producer) are ignored, so that a file can be shared; commands
  that read or write records note which. A name that is in no client is ignored with a warning, as by Kafka's tools;
  `from_properties` refuses it. Names of librdkafka are refused with Kafka's name.

`kctl.mask.*` and `schema.registry.*`, `basic.auth.*` and `bearer.auth.*` are described in
[schema-registry.md](../schema-registry.md), security in [client-security.md](../client-security.md).

| Property | Clients | Use | By what, why not, or what to do |
|---|---|---|---|
"""


def client_properties() -> str:
    """Return the page of Kafka's client properties."""
    rows = (
        f"| `{declared.name}` | {' '.join(declared.clients)} | {declared.use} | {declared.text} |\n"
        for declared in (PROPERTIES[name] for name in sorted(PROPERTIES))
    )
    return _CLIENT_PROPERTIES_HEAD + "".join(rows)


PAGES: dict[str, Callable[[str], str]] = {
    "docs/reference/config.md": lambda _: config_reference(),
    "docs/reference/client-properties.md": lambda _: client_properties(),
    "docs/reference/bounds.md": functools.partial(limits_tables, of_broker=True),
    "docs/reference/bounds-of-commands.md": functools.partial(limits_tables, of_broker=False),
    "docs/reference/apis.md": api_tables,
    "docs/reference/metrics.md": metric_tables,
    "docs/reference/dashboards.md": dashboard_tables,
    "docs/migrate-check.md": migration_tables,
    "docs/kafka-tools.md": lambda page: _between(page, "Kafka's tools", _overview_of_kafkas_tools()),
    **{f"docs/{page}": functools.partial(_page_of_kafkas_tools, page) for page in KAFKA_TOOL_PAGES},
}
"""Each page and the function from its present text to its generated text."""


def schemas() -> dict[str, str]:
    """Return the files with the JSON Schema of each command that shows rows."""
    schema_texts = {}
    for noun, verbs in all_commands().items():
        for verb, command in verbs.items():
            name = noun if noun == verb else f"{noun} {verb}"
            if (shown := shown_by(command.callback)) is not None:
                text = json_text(schema_of(f"kctl {name}", summary_of(command), shown), indent=2)
                schema_texts[f"{SCHEMAS}/{name.replace(' ', '-')}.json"] = text + "\n"
    return schema_texts


def write_cli_reference(folder: Path) -> None:
    """Write cli.md, and the man pages below `man`, into a folder, which is made if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cli.md").write_text(cli_reference(all_commands()), encoding="utf-8")
    write_man_pages(folder / "man")


def main(*, check: bool) -> int:
    """Return the exit status: 1 if `check` found a page out of date."""
    outdated = []
    whole = schemas()
    pages = PAGES | {name: lambda _, text=text: text for name, text in whole.items()}
    for old in (ROOT / SCHEMAS).glob("*.json"):
        name = str(old.relative_to(ROOT))
        if name not in whole:
            outdated.append(name)
            if not check:
                old.unlink()
    for name, text_of in pages.items():
        page = ROOT / name
        present = page.read_text(encoding="utf-8") if page.exists() else ""
        text = text_of(present)
        if present == text:
            continue
        outdated.append(name)
        if not check:
            page.write_text(text, encoding="utf-8")
    if not check:
        write_cli_reference(BUILD)
    for name in outdated:
        sys.stdout.write(f"{name} {'is out of date; run ./dev docs' if check else 'written'}\n")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
