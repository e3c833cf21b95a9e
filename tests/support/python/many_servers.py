"""A cluster without Ray: more servers than it has nodes, and a map that nobody changes."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

from attention_client import Client, LocalServer
from attention_client.info import SequenceForm
from attention_client.ray import (
    Range,
    Replica,
    SequenceMap,
    ShardedSequence,
    hedging,
    moving,
    tree,
)

LOOPBACK = {"peers": "127.0.0.1:*"}


class Servers:
    """What a ShardedSequence needs of an AttentionCluster.

    connect: settings of the clients; flags: of the servers, with one worker thread;
    flags_of(number): of one of them.
    """

    timeout = 60.0
    client = Client

    def __init__(self, count, connect=None, flags_of=lambda _: {}, **flags):
        self._stack = contextlib.ExitStack()
        self._recent = hedging.Recent()
        self._trees = tree.Trees()
        self._map = None
        connect = moving.plain(connect or {})
        with contextlib.ExitStack() as started:
            self._threads = started.enter_context(ThreadPoolExecutor(count))
            self.servers = [
                started.enter_context(
                    LocalServer(
                        worker_threads=1,
                        http=True,
                        http_port=0,
                        **flags,
                        **flags_of(number),
                    )
                )
                for number in range(count)
            ]
            self.clients = [
                started.enter_context(self.client(server.target, **connect))
                for server in self.servers
            ]
            self._stack = started.pop_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _check_open(self):
        pass

    def _client(self, node, timeout=None):
        return self.clients[int(node)]

    def _ask(self, method, *_, timeout=None):
        assert method == "refresh"
        return self._map

    def sequence(self, heads, width, size, dtype="float32", ranges=None, count=None):
        """Ranges of so many keys, one after the other at each of so many servers."""
        count = count or len(self.servers)
        form = SequenceForm(heads, width, width, dtype, 1)
        made = []
        for number in range(ranges or count):
            node = number % count
            one = self.clients[node].sequence(heads=heads, width=width, dtype=dtype)
            made.append(Range(number * size, size, (Replica(str(node), one.name),)))
        self._map = SequenceMap("many", form, 1, size, 1, tuple(made))
        return ShardedSequence(self, self._map, [0])
