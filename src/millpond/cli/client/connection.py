"""Finds the dispatcher that a command should talk to."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from millpond.cli.client.rest import RestClient
from millpond.cli.cluster.record import (
    CLUSTER_FOLDER_HELP,
    ClusterRecord,
    cluster_folder,
    read_cluster,
)
from millpond.cli.exit_codes import UsageError

ADDRESS_VARIABLE = "MILLPOND_ADDRESS"
TOKEN_FILE_VARIABLE = "MILLPOND_TOKEN_FILE"
CA_FILE_VARIABLE = "MILLPOND_CA_FILE"
DEFAULT_ADDRESS = "http://127.0.0.1:8081"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """The addresses of one or more dispatchers and how to connect to them. `reason` says, for people, where
    the addresses come from."""

    addresses: list[str]
    token_file: str | None
    ca_file: str | None
    reason: str

    def connect(self) -> RestClient:
        """Return a client for these dispatchers. Nothing is sent yet. Raise UsageError if the token file
        cannot be read."""
        return RestClient(self.addresses, read_token(self.token_file), self.ca_file)


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `find_target`, `target_of` and `connect` read."""
    group = parser.add_argument_group("connection to the dispatcher")
    group.add_argument(
        "--address",
        metavar="URL",
        help="address of the dispatcher, such as http://HOST:8081; separate several by commas "
        f"(default: ${ADDRESS_VARIABLE}, then the cluster in --dir, then {DEFAULT_ADDRESS})",
    )
    group.add_argument("--dir", metavar="DIR", help=CLUSTER_FOLDER_HELP)
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the dispatcher's token "
        f"(default: ${TOKEN_FILE_VARIABLE}, then the token of the cluster in --dir)",
    )
    group.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates (PEM) to trust if the dispatcher uses TLS "
        f"(default: ${CA_FILE_VARIABLE}, then the certificate of the cluster in --dir)",
    )


def find_target(parsed: argparse.Namespace) -> Target | None:
    """Return the dispatchers that the command line, the environment or a cluster started here names; None if
    none of them does."""
    token_file = parsed.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    ca_file = parsed.ca_file or os.environ.get(CA_FILE_VARIABLE)
    folder = cluster_folder(parsed.dir)
    for text, reason in (
        (parsed.address, "--address"),
        (None if parsed.dir else os.environ.get(ADDRESS_VARIABLE), ADDRESS_VARIABLE),
    ):
        if text:
            addresses = [part for part in text.split(",") if part.strip()]
            if token_file is None:
                token_file = _token_file_of(read_cluster(folder), addresses)
            return Target(addresses, token_file, ca_file, reason)
    record = read_cluster(folder)
    if record is None or not record.dispatcher_addresses():
        return None
    return Target(
        record.dispatcher_addresses(),
        token_file or record.token_file,
        ca_file or record.ca_file,
        f"the cluster in {folder}",
    )


def target_of(parsed: argparse.Namespace) -> Target:
    """Return the target of `find_target`; if there is none, the default address."""
    target = find_target(parsed)
    if target is not None:
        return target
    token_file = parsed.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    ca_file = parsed.ca_file or os.environ.get(CA_FILE_VARIABLE)
    return Target([DEFAULT_ADDRESS], token_file, ca_file, "default")


def connect(parsed: argparse.Namespace) -> RestClient:
    """Return a client for the dispatcher that a command should talk to."""
    return target_of(parsed).connect()


def _token_file_of(record: ClusterRecord | None, addresses: list[str]) -> str | None:
    """Return the token file of the cluster if all the addresses are its dispatchers'. Others must not get its
    token."""
    if record is None:
        return None
    dispatchers = {address.rstrip("/") for address in record.dispatcher_addresses()}
    named = {address.strip().rstrip("/") for address in addresses}
    return record.token_file if named <= dispatchers else None


def read_token(path: str | None) -> str | None:
    """Return the token in a file; None if there is no path. Raise UsageError if the file cannot be read or
    contains anything but a token."""
    if path is None:
        return None
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The token file {path} cannot be read: {problem}.") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"The token file {path} must contain one line, the token, and nothing else."
        )
    return token
