"""What the processes of a cluster leave open: TCP and Unix sockets, files. Read from /proc."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_LISTENS = "0A"  # the state of a TCP socket in /proc/net/tcp
_PROC = Path("/proc")


@dataclass(frozen=True, order=True)
class Listener:
    """`owner`: the command line of the process that listens."""

    host: str
    port: int
    owner: str

    @property
    def is_loopback(self) -> bool:
        address = IPv6Address(self.host) if ":" in self.host else IPv4Address(self.host)
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback

    def __str__(self) -> str:
        return f"{self.host}:{self.port} of {self.owner[:200]}"


def process_tree(roots: Iterable[int]) -> list[int]:
    """The processes and all that descend from them."""
    children: dict[int, list[int]] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(path.parent.name))
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.append(pid)
            waiting += children.get(pid, [])
    return found


def command_line(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def listeners(pids: Iterable[int]) -> list[Listener]:
    """The TCP sockets that the processes listen on."""
    known: dict[str, tuple[str, int]] = {}
    for name in ("tcp", "tcp6"):
        for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS:
                host, _, port = fields[1].partition(":")
                known[fields[9]] = (_address(host), int(port, 16))
    found = {
        Listener(*known[inode], command_line(pid))
        for pid in pids
        for inode in _socket_inodes(pid)
        if inode in known
    }
    return sorted(found)


def unix_sockets(pids: Iterable[int]) -> list[str]:
    """The paths of the Unix sockets that the processes listen on; one without a file begins with @."""
    paths = {}
    for line in (_PROC / "net" / "unix").read_text().splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) == 8:
            paths[fields[6]] = fields[7]
    return sorted({paths[i] for pid in pids for i in _socket_inodes(pid) if i in paths})


def written_files(pids: Iterable[int]) -> list[str]:
    """The files that the processes have open for writing."""
    found = set()
    for pid in pids:
        for number, target in _descriptors(pid):
            flags = (_PROC / str(pid) / "fdinfo" / number).read_text().split("flags:")[1].split()[0]
            writes = int(flags, 8) & (os.O_WRONLY | os.O_RDWR)
            if writes and target.startswith("/") and Path(target).is_file():
                found.add(target)
    return sorted(found)


def is_private(path: str) -> bool:
    """True if its own mode, or that of a folder on the way, keeps others out. Sockets may be gone again."""
    for own in (Path(path), *Path(path).parents):
        if not own.exists():
            continue
        mode = stat.S_IMODE(own.stat().st_mode)
        if not mode & (0o011 if own.is_dir() else 0o066):
            return True
    return False


def _descriptors(pid: int) -> list[tuple[str, str]]:
    found = []
    try:
        for path in (_PROC / str(pid) / "fd").iterdir():
            found.append((path.name, os.readlink(path)))
    except OSError:  # it has ended, or has closed it
        pass
    return found


def _socket_inodes(pid: int) -> list[str]:
    return [t[8:-1] for _, t in _descriptors(pid) if t.startswith("socket:[")]


def _address(text: str) -> str:
    """Each 32 bits are in the machine's order: little endian."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    raw = b"".join(words)
    return str(IPv4Address(raw) if len(raw) == 4 else IPv6Address(raw))
