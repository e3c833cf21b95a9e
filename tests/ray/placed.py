"""Ranges of a sequence at servers that are not there: their memory alone is counted."""

from types import SimpleNamespace

from attention_client import ResourceExhaustedError
from attention_client.info import SequenceForm
from attention_client.ray.ranges import PAGE, Range, SequenceMap, capacity
from attention_client.ray.replicas import Replicas
from attention_client.ray.rooms import _page_bytes
from attention_client.ray.state import Node, State

PER_KEY = 512  # bytes of a layer, of heads=1, width=64


class Server:
    """What Replicas calls. is_full: it makes no sequence, whatever it has told."""

    def __init__(self, limit):
        self.limit, self.held, self.is_full = limit, 0, False
        self.names = []

    def info(self):
        told = SimpleNamespace(memory_limit=self.limit, held_bytes=self.held)
        return SimpleNamespace(sequence_store=told)

    def sequence(self, *, name, **_):
        if self.is_full:
            raise ResourceExhaustedError("full")
        self.names.append(name)

    def delete_sequences(self, names):
        self.names = [name for name in self.names if name not in names]


class Placed:
    """limits: bytes of each server."""

    def __init__(self, limits, *, layers=1, replicas=1, range_keys=512):
        self.servers = {name: Server(limit) for name, limit in limits.items()}
        self._state = State("placed")
        self._state._nodes = {name: Node(name, name, name, name) for name in limits}
        self._replicas = Replicas(self._state, {}, None)
        self._replicas.client = self.servers.__getitem__
        form = SequenceForm(1, 64, 64, "float32", layers)
        self.known = SequenceMap("it", form, replicas, range_keys, 0, ())
        self.lengths = [0] * layers
        self._put()

    def _put(self):
        self._state._sequences[self.known.name] = self.known

    def other(self, node, keys):
        """Of another sequence, whose only range is there and may be full by now."""
        one = self._replicas.next_range(self.known, keys, [0] * len(self.lengths))
        assert [replica.node for replica in one.replicas] == [node]
        form = self.known.form
        self._state._sequences["other"] = SequenceMap("other", form, 1, keys, 0, (one,))

    def next_range(self, size) -> Range:
        """What the map then has, too."""
        part = self._replicas.next_range(self.known, size, self.lengths)
        self.known = self.known.changed([*self.known.ranges, part])
        self._put()
        return part

    def append(self, layer, keys):
        """As the map and the servers do it."""
        end = self.lengths[layer] + keys
        while self.known.end < end:
            self.next_range(capacity(self.known, end, len(self.servers)))
        for part in self.known.ranges:
            pages = [-(-part.count(n) // PAGE) for n in (self.lengths[layer], end)]
            for replica in part.replicas:
                server = self.servers[replica.node]
                server.held += (pages[1] - pages[0]) * _page_bytes(self.known)
                if server.held > server.limit:
                    raise ResourceExhaustedError(f"{replica.node} is full")
        self.lengths[layer] = end
