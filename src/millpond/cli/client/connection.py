"""Finds the dispatcher that a command is meant for."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

from millpond.cli.client.rest import RestClient
from millpond.cli.cluster.record import ClusterRecord, cluster_folder, read_cluster
from millpond.cli.exit_codes import UsageError

ADDRESS_VARIABLE = "MILLPOND_ADDRESS"
TOKEN_FILE_VARIABLE = "MILLPOND_TOKEN_FILE"
CA_FILE_VARIABLE = "MILLPOND_CA_FILE"
DEFAULT_ADDRESS = "http://127.0.0.1:8081"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """Where dispatchers are, and why they are believed to be there."""

    addresses: list[str]
    token_file: str | None
    ca_file: str | None
    reason: str

    def connect(self) -> RestClient:
        return RestClient(self.addresses, read_token(self.token_file), self.ca_file)


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where the dispatcher is")
    group.add_argument(
        "--address",
        metavar="URL",
        help=f"such as http://HOST:8081, several with commas; default: ${ADDRESS_VARIABLE}, then the cluster "
        f"that start-cluster started in --dir, then {DEFAULT_ADDRESS}",
    )
    group.add_argument(
        "--dir", metavar="DIR", help="the cluster's folder (default: $MILLPOND_HOME or ~/.millpond)"
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"has the token (default: ${TOKEN_FILE_VARIABLE}, then that of the cluster in --dir)",
    )
    group.add_argument(
        "--ca-file",
        metavar="FILE",
        help=f"certificates to trust, if it speaks TLS (default: ${CA_FILE_VARIABLE})",
    )


def find_target(parsed: argparse.Namespace) -> Target | None:
    """What the command line, the environment or a started cluster names; None if nothing does."""
    token_file = parsed.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    ca_file = parsed.ca_file or os.environ.get(CA_FILE_VARIABLE)
    folder = cluster_folder(parsed.dir)
    for given, reason in (
        (parsed.address, "--address"),
        (None if parsed.dir else os.environ.get(ADDRESS_VARIABLE), ADDRESS_VARIABLE),
    ):
        if given:
            addresses = [part for part in given.split(",") if part.strip()]
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
        f"the cluster of {folder}",
    )


def target_of(parsed: argparse.Namespace) -> Target:
    """The dispatcher that is named, or where one usually is."""
    target = find_target(parsed)
    if target is not None:
        return target
    token_file = parsed.token_file or os.environ.get(TOKEN_FILE_VARIABLE)
    ca_file = parsed.ca_file or os.environ.get(CA_FILE_VARIABLE)
    return Target([DEFAULT_ADDRESS], token_file, ca_file, "default")


def connect(parsed: argparse.Namespace) -> RestClient:
    return target_of(parsed).connect()


def _token_file_of(record: ClusterRecord | None, addresses: list[str]) -> str | None:
    """A cluster's token is for its own dispatchers only, also if they are named by their addresses."""
    if record is None:
        return None
    own = {address.rstrip("/") for address in record.dispatcher_addresses()}
    named = {address.strip().rstrip("/") for address in addresses}
    return record.token_file if named <= own else None


def read_token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"The token file {path} cannot be read: {problem}.") from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"The token file {path} must have one line, the token.")
    return token
