"""Kafka versions in properties."""

from __future__ import annotations

import pytest

from kctl.config.definition import known_version
from kctl.config.subjects.versions import VERSION_NAMES, version_rank
from tests.rows import for_rows


@pytest.mark.parametrize(
    ("spelled", "means"),
    [
        ("0.10.0.0", "0.10.0-IV1"),  # librdkafka's tests set message.format.version to this
        ("0.9.0.1", "0.9.0"),
        ("2.8.2", "2.8-IV1"),
        ("2.8", "2.8-IV1"),
        ("2.7-IV0", "2.7-IV0"),
    ],
)
def test_patch_numbers_do_not_count(spelled: str, means: str) -> None:
    assert known_version(VERSION_NAMES).accepts(spelled)
    assert version_rank(spelled) == version_rank(means)


@for_rows("unknown", ["", "2", "9.9", "0.10", "2.8-IV7", "latest"])
def test_unknown_versions_are_refused(unknown: str) -> None:
    assert not known_version(VERSION_NAMES).accepts(unknown)
    with pytest.raises(ValueError, match="not in tuple"):
        version_rank(unknown)
