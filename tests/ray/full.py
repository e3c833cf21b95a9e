"""Servers that have no room."""

import contextlib

from at_nodes import asked

from attention_client import ResourceExhaustedError

FORM = {"heads": 1, "width": 64}  # 512 bytes a key


def fill(sequence, normal):
    """Until its server has no room for another page of it."""
    page = normal(1, 64, 64)
    with contextlib.suppress(ResourceExhaustedError):
        while True:
            for layer in range(len(sequence.lengths)):
                sequence.append(page, page, layer)


def no_reports(cluster):
    """The map does not learn what servers hold: it learns that they are full."""

    def be_blind(of):
        of._state.rooms.set = lambda node, free: None
        for node in of._state.node_names():
            of._state.rooms.forget(node)

    asked(cluster._map, be_blind)
