"""The screen of `kctl top`: keys and samples in, lines out."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.admin.cluster.clients import Software
from kctl.admin.placement.reassignment import Ongoing
from kctl.admin.sampling.activity import Activity, activity
from kctl.admin.sampling.sample import BrokerReading, ClusterSample, GroupReading
from kctl.client.metadata import Broker, ClusterMetadata, Partition, Topic
from kctl.commands.top.screen import overview, render, text_of
from kctl.commands.top.state import Key, KeyPressed, Sampled, SampleFailed, State, keys_of, step
from kctl.commands.top.views import COLUMNS, View
from kctl.errors import ErrorCode
from kctl.model import TopicPartition
from kctl.output.quantities import compact
from kctl.output.terminal_text import display_width, escape
from tests.rows import for_rows

KEYS = st.one_of(st.sampled_from([*Key, *"obtgpcq?hsSr/ kj"]), st.characters())


def sample(at_ms: int, names: list[str], *, alive: int = 3, ends: int = 0) -> ClusterSample:
    """A cluster with these topics and groups."""
    brokers = {n: Broker(n, f"broker-{n}.example.com", 9092, "rack" if n else None) for n in range(alive)}
    partitions = tuple(
        Partition(n, n % 3, 1, (0, 1, 2), (0, 1, 2) if n % 2 else (0,), (), ErrorCode.NONE) for n in range(4)
    )
    topics = {name: Topic(name, UUID(int=0), False, partitions, ErrorCode.NONE) for name in names}
    all_of = [TopicPartition(name, n) for name in names for n in range(4)]
    return ClusterSample(
        at_ms,
        ClusterMetadata("cluster", 0, brokers, topics),
        ends=dict.fromkeys(all_of, ends),
        sizes={(n, tp): 10**9 for tp in all_of for n in range(3)},
        ongoing={tp: Ongoing((0, 1, 2), (2,), ()) for tp in all_of[:1]},
        groups={
            name: GroupReading("Stable", 1, dict.fromkeys(all_of, 0), dict.fromkeys(all_of[:1], ("app-1", "/10.0.0.9")))
            for name in names
        },
        readings={
            0: BrokerReading(
                bytes_in=at_ms,
                produce_p99_ms=3.5,
                loop_buckets={0.001: at_ms},
                connections={Software("apache-kafka-java", "3.9.1"): 2},
            ),
            1: BrokerReading(connections={Software("apache-kafka-java", "3.9.1"): 1, Software("kctl", "1.0.0"): 1}),
        },
    )


def activity_of(names: list[str], alive: int = 3) -> Activity:
    verdicts = dict(zip(names, ("OK", "LOSING", None, "STALLED"), strict=False))
    return activity(sample(1_000, names, alive=alive), sample(2_000, names, alive=alive, ends=12_345), verdicts.get)


def pressed(state: State, *keys: str) -> State:
    for key in keys:
        state = step(state, KeyPressed(key), 0)
    return state


def shown(names: list[str], *keys: str) -> State:
    return pressed(step(State(2_000), Sampled(activity_of(names)), 0), *keys)


def texts(state: State, width: int = 80, height: int = 24) -> list[str]:
    return [text_of(line) for line in render(state, width, height)]


@given(
    names=st.lists(st.text(max_size=60), max_size=6, unique=True),
    keys=st.lists(KEYS, max_size=12),
    alive=st.integers(0, 4),
    width=st.integers(1, 250),
    height=st.integers(1, 70),
)
def test_no_screen_exceeds_the_terminal_or_contains_control_characters(
    names: list[str], keys: list[str], alive: int, width: int, height: int
) -> None:
    state = pressed(step(State(2_000), Sampled(activity_of(names, alive)), 0), *keys)
    lines = texts(state, width, height)
    assert len(lines) <= height
    for line in lines:
        assert display_width(line) <= width
        assert escape(line) == line


@given(keys=st.lists(KEYS, max_size=30), names=st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True))
def test_the_cursor_is_always_on_a_row(keys: list[str], names: list[str]) -> None:
    state = shown(["a", "b", "c"])
    for key in keys:
        state = pressed(state, key)
        state = step(state, Sampled(activity_of(names)), 0)
        rows = len(state.table().rows)
        assert 0 <= state.place.cursor < max(rows, 1) or state.is_paused


@given(text=st.text(max_size=40), received=st.binary(max_size=40))
def test_any_bytes_of_a_terminal_are_keys(text: str, received: bytes) -> None:
    for key in keys_of(text.encode("utf-8", "ignore") + received):
        assert key in list(Key) or (len(key) == 1 and key.isprintable())


@for_rows(
    "received, keys",
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", [Key.UP, Key.DOWN]),
        (b"\x1bOA", [Key.UP]),
        (b"\x1b", [Key.ESCAPE]),
        (b"\x1b[5~j", [Key.PAGE_UP, "j"]),
        (b"\x1b[1;5Cx", ["x"]),
        ("\u00e9\r\x7f".encode(), ["\u00e9", Key.ENTER, Key.BACKSPACE]),
    ],
)
def test_keys_are_recognised(received: bytes, keys: list[str]) -> None:
    assert keys_of(received) == keys


def test_enter_opens_what_is_selected_and_escape_leads_back() -> None:
    state = shown(["a", "b"], "t", "j", Key.ENTER)
    assert (state.place.view, state.place.subject) == (View.TOPIC, "b")
    assert [row.topic for row in state.table().rows] == ["b"] * 4
    state = pressed(state, Key.ESCAPE)
    assert (state.place.view, state.place.cursor) == (View.TOPICS, 1)
    assert pressed(state, Key.ESCAPE).place.view is View.OVERVIEW


def test_a_group_opens_its_partitions_and_these_open_their_topic() -> None:
    state = shown(["a"], "g", Key.ENTER)
    assert state.place.view is View.GROUP
    assert {row.group for row in state.table().rows} == {"a"}
    assert pressed(state, Key.ENTER).place.view is View.TOPIC


def test_clients_are_shown_by_software_and_the_reader_of_a_partition_by_client_id() -> None:
    seen = shown(["orders"], "c")
    assert [tuple(row) for row in seen.table().rows] == [
        ("apache-kafka-java", "3.9.1", 3, [0, 1]),
        ("kctl", "1.0.0", 1, [1]),
    ]
    offsets = shown(["orders"], "g", Key.ENTER).table().rows
    assert [(row.partition, row.client_id, row.host) for row in offsets if row.client_id] == [(0, "app-1", "/10.0.0.9")]


def test_a_broker_opens_the_partitions_that_it_holds() -> None:
    state = shown(["a"], "b", "j", Key.ENTER)
    assert (state.place.view, state.place.subject) == (View.BROKER, "1")
    assert len(state.table().rows) == 4


def test_a_filter_is_typed_kept_and_removed() -> None:
    state = shown(["orders", "payments"], "t", "/", "P", "a", "y")
    assert [row.topic for row in state.table().rows] == ["payments"]
    assert texts(state)[-1] == "filter: Pay_"
    state = pressed(state, Key.ENTER, "q")
    assert state.is_done
    assert [row.topic for row in pressed(state, Key.ESCAPE).table().rows] == ["orders", "payments"]


def test_letters_are_no_commands_while_a_filter_is_typed() -> None:
    state = shown(["queue"], "t", "/", "q")
    assert not state.is_done
    assert state.place.filter == "q"


@for_rows("keys", ["b", "t", "g", "p", ["b", Key.ENTER], ["t", Key.ENTER], ["g", Key.ENTER]])
def test_sorting_visits_every_column_and_reverses(keys: Sequence[str]) -> None:
    state = shown(["a", "b", "c"], *keys)
    view = state.place.view
    fields = [column.field for column in COLUMNS[view]]
    first = state.sorts[view][0]
    seen = []
    for _ in fields:
        seen.append(state.sorts[view][0])
        for ordered in (state, pressed(state, "r")):
            values = [getattr(row, seen[-1]) for row in ordered.table().rows]
            assert values
            assert None not in values[: len(values) - values.count(None)]
        state = pressed(state, "s")
    assert sorted(seen) == sorted(fields)
    assert state.sorts[view][0] == first


def test_names_are_sorted_upwards_and_verdicts_by_their_severity() -> None:
    state = shown(["a", "b", "c", "d"], "g")
    while state.sorts[View.GROUPS][0] != "group":
        state = pressed(state, "s")
    assert [row.group for row in state.table().rows] == ["a", "b", "c", "d"]
    assert [row.group for row in pressed(state, "r").table().rows] == ["d", "c", "b", "a"]
    while state.sorts[View.GROUPS][0] != "verdict":
        state = pressed(state, "s")
    assert [row.verdict for row in state.table().rows] == ["LOSING", "STALLED", "OK", None]
    assert [row.verdict for row in pressed(state, "r").table().rows] == ["OK", "STALLED", "LOSING", None]


def test_a_terminal_of_five_lines_shows_the_selected_row() -> None:
    lines = texts(shown(["orders", "payments"], "t", Key.DOWN), 20, 5)
    assert len(lines) == 5
    assert lines[0].startswith("kctl top")
    assert any(line.startswith("payments") for line in lines)


def test_space_keeps_the_screen_until_it_is_pressed_again() -> None:
    state = shown(["a"], " ")
    assert step(state, Sampled(activity_of(["b"])), 1).seen == state.seen
    assert texts(state, 20)[0].startswith("kctl top  PAUSED")
    assert not step(step(state, SampleFailed("x"), 1), Sampled(activity_of(["b"])), 2).failure
    assert step(pressed(state, " "), Sampled(activity_of(["b"])), 1).seen != state.seen


def test_a_cluster_that_does_not_respond_keeps_its_last_values_on_the_screen() -> None:
    state = step(shown(["orders"]), SampleFailed("cannot reach \x1b[31mhost"), 7_000)
    lines = texts(state, 200)
    assert "no response for 7 s: cannot reach \\x1b[31mhost" in lines[0]
    assert any("orders" in line for line in lines)
    assert texts(state, 40)[0] == "kctl top  no response for 7 s: cannot..."
    assert "orders" not in "".join(texts(step(State(1), SampleFailed("x"), 2)))


def test_the_health_of_the_cluster_is_on_the_third_line() -> None:
    assert texts(shown([]))[2] == "all partitions are in sync"
    assert texts(shown(["a"]))[2] == "partitions: 2 under-replicated"
    assert texts(step(State(1), Sampled(activity_of(["a"], alive=2)), 0))[2].startswith("partitions: 1 offline")


@pytest.mark.parametrize("width", [80, 200])
def test_the_overview_shows_brokers_topics_and_groups(width: int) -> None:
    lines = texts(shown(["orders", "payments"]), width)
    for title in ("BROKER", "TOPIC ", "GROUP"):
        assert any(line.startswith(title) for line in lines), lines
    assert any(line.startswith("orders") and "UNDER-REPLICATED" in line for line in lines)


def test_the_overview_names_no_key_that_has_no_effect_there() -> None:
    state = shown(["orders"])
    assert pressed(state, "/") == pressed(state, "s") == pressed(state, Key.ENTER) == state
    [overview_foot, topics_foot] = [texts(view, width=200)[-1] for view in (state, shown(["orders"], "t"))]
    words = ("Enter open", "Esc back", "/ filter", "s sort")
    assert [word in overview_foot for word in words] == [False] * 4
    assert [word in topics_foot for word in words] == [True] * 4


def test_the_overview_in_a_pipe_has_all_rows() -> None:
    names = [f"topic-{number}" for number in range(100)]
    lines = [text_of(line) for line in overview(activity_of(names), None)]
    assert all(any(line.startswith(name + " ") for line in lines) for name in names)


@for_rows(
    "value, text",
    [
        (None, "-"),
        (0, "0"),
        (0.04, "0.0"),
        (7.25, "7.2"),
        (999, "999"),
        (999.6, "1.0k"),
        (12_345, "12.3k"),
        (-1_500, "-1.5k"),
        (123_456_789, "123M"),
        (10**21, "1000E"),
    ],
)
def test_numbers_are_written_short(value: float | None, text: str) -> None:
    assert compact(value) == text
