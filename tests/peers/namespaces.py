"""Hosts as Linux network namespaces behind one bridge, whose connections can be cut.

A host that is cut off receives nothing, not even a reset, as after the failure of a switch.  Requires root, or at least
CAP_NET_ADMIN and CAP_SYS_ADMIN, and the program `ip`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

_NETWORKS = 250


def why_not() -> str | None:
    """The reason why namespaces cannot be created on this machine, for a skipped test; None if they can."""
    if shutil.which("ip") is None:
        return "ip is not on the PATH: install iproute2"
    name = f"kf-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"network namespaces need root (CAP_NET_ADMIN, CAP_SYS_ADMIN): {made.stderr.strip()}"
    _ip("netns", "delete", name)
    return None


class Network:
    """Up to 200 hosts; this process reaches them through the bridge."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._bridge = f"kf{number}"
        self._hosts: dict[str, int] = {}
        _ip("link", "add", "name", self._bridge, "type", "bridge")
        _ip("address", "add", f"10.231.{number}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")

    def add(self, host: str) -> str:
        """Creates a host; returns its address."""
        self._hosts[host] = len(self._hosts) + 11
        space, cable = self._space(host), self._cable(host)
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", space, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")
        return self.address(host)

    def address(self, host: str) -> str:
        return f"10.231.{self._number}.{self._hosts[host]}"

    def on(self, host: str) -> list[str]:
        """The command prefix that runs a command on the host, in the same process."""
        return ["ip", "netns", "exec", self._space(host)]

    def file(self, host: str) -> Path:
        """The file of the host's network namespace."""
        return Path("/run/netns") / self._space(host)

    def unplug(self, host: str) -> None:
        """Drops all packets from and to the host."""
        _ip("link", "set", self._cable(host), "down")

    def plug_in(self, host: str) -> None:
        _ip("link", "set", self._cable(host), "up")

    def part(self, one: str, other: str) -> None:
        """Drops all packets between two hosts; both reach all others."""
        _ip("-n", self._space(one), "route", "add", "blackhole", f"{self.address(other)}/32")
        _ip("-n", self._space(other), "route", "add", "blackhole", f"{self.address(one)}/32")

    def join(self, one: str, other: str) -> None:
        """Undoes `part`."""
        _ip("-n", self._space(one), "route", "delete", "blackhole", f"{self.address(other)}/32")
        _ip("-n", self._space(other), "route", "delete", "blackhole", f"{self.address(one)}/32")

    def remove(self) -> None:
        """The processes on the hosts have ended."""
        for host in self._hosts:
            with contextlib.suppress(subprocess.CalledProcessError):
                # The kernel removes a namespace some time after its deletion, and until then the link exists.
                _ip("link", "delete", self._cable(host))
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", self._space(host))
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", self._bridge)

    def _space(self, host: str) -> str:
        return f"kf{self._number}-{host}"

    def _cable(self, host: str) -> str:
        """At most 15 characters, as the kernel has it."""
        return f"kf{self._number}v{self._hosts[host]}"


@contextlib.contextmanager
def network() -> Iterator[Network]:
    """A network namespace with a unique name, removed after the block."""
    made = _made()
    try:
        yield made
    finally:
        made.remove()


def _made() -> Network:
    """The first unused number: the kernel refuses a second bridge of the same name."""
    for attempt in range(_NETWORKS):
        with contextlib.suppress(subprocess.CalledProcessError):
            return Network((os.getpid() + attempt) % _NETWORKS)
    raise RuntimeError(f"all {_NETWORKS} networks are taken, or none can be made: see `ip link`")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)
