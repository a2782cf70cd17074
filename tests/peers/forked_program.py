"""`kctl` as a program for shells and terminals: has the server of forked commands run it, in the network, folder and
environment of this process, and with its standard streams and signals.

It imports next to nothing, because tests start it often.
"""

from __future__ import annotations

import _socket
import marshal
import os
import signal
import sys

STREAMS = (0, 1, 2)
SENT_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NUMBER_BYTES = 4


def main(address: str, words: list[str]) -> int:
    """The exit status of the command, of which `address` is that of the server."""
    reports, theirs = os.pipe()
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    files = b"".join(number.to_bytes(NUMBER_BYTES, sys.byteorder) for number in (*STREAMS, network, theirs))
    request = marshal.dumps({"words": words, "environment": dict(os.environ), "folder": os.getcwd()})
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    server.connect(address)
    server.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    os.close(theirs)
    process = report(reports)
    for sent in SENT_ON:
        signal.signal(sent, lambda number, _: os.kill(process, number))
    status = report(reports)
    if status < 0:
        if -status in SENT_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def report(reports: int) -> int:
    """The id of the process, and then its exit status."""
    read = os.read(reports, NUMBER_BYTES)
    if not read:
        sys.exit("the server of forked commands has ended")
    return int.from_bytes(read, sys.byteorder, signed=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
