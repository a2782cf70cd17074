"""An S3 server on loopback in a process of its own (moto), and the variables by which clients find it.

A thread would not do: some clients hold Python's global lock while they wait for an answer.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "lake"
START_TIMEOUT_S = 120


@contextmanager
def s3_server() -> Iterator[str]:
    """Runs the server with an empty bucket; yields its URL."""
    root = str(Path(__file__).parent.parent.parent)
    command = [sys.executable, "-m", "tests.peers.s3_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, f"the S3 server ended with status {process.wait()}"
        try:
            request = Request(f"{url}/{BUCKET}", method="PUT", headers={"Content-Length": "0"})
            urlopen(request, timeout=START_TIMEOUT_S).close()
            yield url
        finally:
            process.kill()


def set_variables(environment: pytest.MonkeyPatch, url: str) -> None:
    """Sets the variables of the usual clients, and removes those of the machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        environment.delenv(name)
    environment.setenv("AWS_ENDPOINT_URL", url)
    environment.setenv("AWS_ACCESS_KEY_ID", "key-of-the-tests")
    environment.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-tests")
    environment.setenv("AWS_REGION", "us-east-1")
    environment.setenv("AWS_EC2_METADATA_DISABLED", "true")


def _serve() -> None:
    """Serves until standard input ends, which it does when the parent process has ended."""
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
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201 - the parent reads it
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
