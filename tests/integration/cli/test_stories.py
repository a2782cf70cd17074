"""The tasks in docs/stories.md, typed in a terminal against three brokers, show what they have to."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from docs.capture_stories import PAGE, PROPERTIES, STORIES, Shell, Story, markers, prepare
from tests.peers.three_brokers import kctl_cluster


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    data, folder = tmp_path_factory.mktemp("cluster"), tmp_path_factory.mktemp("home")
    with kctl_cluster(data, PROPERTIES) as bootstrap:
        yield prepare(data, bootstrap, folder)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title)
def test_every_line_of_a_story_shows_what_it_has_to(shell: Shell, story: Story) -> None:
    for step, text, status in shell.tell(story):
        assert status == step.status, text
        for pattern in step.shows:
            assert re.search(pattern, text), (step.line, pattern, text)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title)
def test_the_page_has_the_lines_of_the_story(story: Story) -> None:
    start, end = markers(story)
    text = PAGE.read_text(encoding="utf-8").partition(start)[2].partition(end)[0]
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ") and line != "$ echo $?"]
    assert lines == [step.line for step in story.steps], "run python -m docs.capture_stories"
