"""An S3 server on loopback in a process of its own (moto), and the variables by which clients find it.

A thread would not do: some clients hold Python's global lock while they wait for an answer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

BUCKET = "lake"
FAULTS_PATH = "/_faults"
LOST, RESET, BUSY, EXPIRED = "lost", "reset", "busy", "expired"
"""Faults: a request is carried out, and the connection closed instead of the response; closed in the middle of the
request; or the request is refused."""
REFUSALS = {
    BUSY: ("503 Slow Down", "SlowDown"),
    EXPIRED: ("403 Forbidden", "ExpiredToken"),
}
START_TIMEOUT_S = 120
KEYS_PER_PAGE = 5
"""In a response to a list request, so that most lists need several; S3 has 1,000."""


@contextmanager
def s3_server() -> Iterator[str]:
    """Runs the server with an empty bucket; yields its URL."""
    root = str(Path(__file__).parent.parent.parent)
    command = [sys.executable, "-m", "tests.peers.s3_server"]
    environment = os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": str(KEYS_PER_PAGE)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, f"the S3 server ended with status {process.wait()}"
        try:
            request = Request(f"{url}/{BUCKET}", method="PUT", headers={"Content-Length": "0"})
            urlopen(request, timeout=START_TIMEOUT_S).close()
            yield url
        finally:
            process.kill()


def set_faults(url: str, faults: Sequence[tuple[str, str, str]]) -> list[list[str]]:
    """Sets the faults: method, a regular expression for the path, and the fault; returns those that were left.

    Each request has the first that fits, which is then used up.
    """
    request = Request(f"{url}{FAULTS_PATH}", method="POST", data=json.dumps(faults).encode())
    with urlopen(request, timeout=START_TIMEOUT_S) as response:
        left: list[list[str]] = json.load(response)
    return left


def _next_fault(faults: list[list[str]], environ: dict[str, Any]) -> str:
    for number, (method, path, fault) in enumerate(faults):
        if environ["REQUEST_METHOD"] == method and re.search(path, environ["PATH_INFO"]):
            del faults[number]
            return fault
    return ""


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
    faults: list[list[str]] = []

    def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Any:
        # moto checks If-None-Match and creates the object in two steps.
        with lock:
            if environ["PATH_INFO"] == FAULTS_PATH:
                unused = json.dumps(faults).encode()
                faults[:] = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
                start_response("200 OK", [])
                return [unused]
            return _answer(_next_fault(faults, environ), environ, start_response)

    def _answer(fault: str, environ: dict[str, Any], start_response: Any) -> Any:
        if fault in REFUSALS:
            status, code = REFUSALS[fault]
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>x</Message></Error>".encode()]
        if fault == RESET:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0) // 2)
        else:
            answer = moto(environ, start_response)
        if fault:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError
        return answer

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201 - the parent reads it
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
