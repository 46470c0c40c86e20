"""Stable names of operators (E46). State is found again by them."""

from __future__ import annotations

import hashlib

from millpond.datastream.stream_graph import Node, StreamGraph


def operator_uids(graph: StreamGraph) -> dict[int, str]:
    """The uid of every node: the user's, or one made from the node's kind and its way from the
    sources. Adding an unrelated branch changes nobody's generated uid; adding an operator before a
    stateful one changes that one's. So: give stateful operators a uid."""
    uids: dict[int, str] = {}
    seen: dict[str, int] = {}
    for node in graph.nodes.values():
        if node.uid is not None or node.uid_hash is not None:
            uids[node.id] = node.uid_hash or str(node.uid)
            continue
        digest = _fingerprint(node, uids)
        # Two operators of the same kind on the same input are told apart by their order.
        count = seen[digest] = seen.get(digest, -1) + 1
        uids[node.id] = digest if count == 0 else f"{digest}-{count}"
    return uids


def _fingerprint(node: Node, uids: dict[int, str]) -> str:
    parts = [node.kind.value]
    for edge in node.inputs:
        parts.append(
            f"{uids[edge.source]}/{edge.exchange.kind.value}/{edge.tag}/{edge.input_index}"
        )
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]
