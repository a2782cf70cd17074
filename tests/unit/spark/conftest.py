"""One S3 server for all tests of exports: each uses paths of its own in the bucket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers import s3_server


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    with s3_server.s3_server() as url:
        yield url
