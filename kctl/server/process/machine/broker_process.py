"""The process of one broker of a machine: `python -m kctl.server.process.machine.broker_process DATA_DIR DESCRIPTOR`.

Its standard input is a JSON object with the properties, some of which are passwords, and the format of the log.
DESCRIPTOR is one end of a stream to the supervisor.  The broker sends it the notifications that systemd would get; its
end means that the supervisor has ended, however it ended, and this process then ends too.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path

from kctl.errors import KctlError
from kctl.output.log_lines import LogFormat
from kctl.server.process import process
from kctl.server.process.data_folder import DataFolder
from kctl.server.process.machine.supervision import WATCHDOG_MS
from kctl.server.process.service_manager import ServiceManager, ServiceSettings
from kctl.server.process.starting import StartOptions

STOP_WITHOUT_SUPERVISOR_S = 60.0
"""How long a controlled shutdown may take after the supervisor has ended."""
_REASON_CHARACTERS_MAX = 4_000


def main() -> int:
    """Run the broker until it is stopped; return the exit status."""
    folder, descriptor = sys.argv[1:]
    supervisor = socket.socket(fileno=int(descriptor))  # Open until the process ends.
    threading.Thread(target=_end_with, args=(supervisor.fileno(),), name="supervisor", daemon=True).start()
    document = json.load(sys.stdin)
    options = StartOptions(
        folder=DataFolder(Path(folder)),
        file_properties={},
        overrides=document["properties"],
        log_format=LogFormat(document["log_format"]),
        process=document["process"],
    )
    try:
        process.run(
            options,
            on_serving=lambda _: None,
            on_warning=None,  # The supervisor has shown them.
            log_stream=None if document["is_quiet"] else sys.stderr,
            service=ServiceManager(ServiceSettings(None, WATCHDOG_MS // 3), supervisor.dup()),
        )
    except KctlError as error:
        reason = str(error).replace("\n", " ")[:_REASON_CHARACTERS_MAX]
        supervisor.setblocking(True)
        supervisor.sendall(f"STATUS={reason}\n".encode())
        return 1
    return 0


def _end_with(supervisor: int) -> None:
    """End this process when the supervisor has ended, also if the event loop is stuck.  Runs in a thread."""
    poll = select.poll()
    poll.register(supervisor, select.POLLIN)
    poll.poll()  # The supervisor sends nothing, so that this is the end of the stream.
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(STOP_WITHOUT_SUPERVISOR_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
