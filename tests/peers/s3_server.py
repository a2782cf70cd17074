"""An S3 server on loopback in a thread of the test process (moto), and the variables by which clients find it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "lake"


@contextmanager
def s3_server() -> Iterator[str]:
    """Runs the server with an empty bucket; yields its URL."""
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 - a second
        DomainDispatcherApplication,
        create_backend_app,
    )
    from werkzeug.serving import make_server  # noqa: PLC0415 - same

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    lock = threading.Lock()
    moto = DomainDispatcherApplication(create_backend_app)

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Any:
        # moto checks If-None-Match and creates the object in two steps.
        with lock:
            return moto(environ, start_response)

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        urlopen(Request(f"{url}/{BUCKET}", method="PUT", headers=_UNSIGNED), timeout=60).close()
        yield url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def set_variables(environment: pytest.MonkeyPatch, url: str) -> None:
    """Sets the variables of the usual clients, and removes those of the machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        environment.delenv(name)
    environment.setenv("AWS_ENDPOINT_URL", url)
    environment.setenv("AWS_ACCESS_KEY_ID", "key-of-the-tests")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-tests")
    environment.setenv("AWS_REGION", "us-east-1")
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")


_UNSIGNED = {"Content-Length": "0"}
