"""Calls whose answers are compared with those of one server with the same keys."""

import contextlib

import numpy as np
from waiting import wait_until

from attention_client import UnavailableError

HEADS, WIDTH, KEYS = 2, 16, 700


class Checked:
    """A sequence over the cluster, and the same keys at one server."""

    def __init__(self, cluster, one_server, normal, replicas):
        form = {"heads": HEADS, "width": WIDTH}
        self.sharded = cluster.sequence(**form, range_keys=64, replicas=replicas)
        self.whole = one_server.sequence(**form)
        self._cluster = cluster
        self._normal = normal
        self.append(KEYS)

    def rows(self, count):
        return self._normal(HEADS, count, WIDTH), self._normal(HEADS, count, WIDTH)

    def append(self, count=1):
        rows = self.rows(count)
        assert self.sharded.append(*rows) == self.whole.append(*rows)

    def attend(self):
        self._same(self.sharded, self._normal(4, 2, WIDTH), causal="bottom_right")

    def step(self):
        options = {"append": self.rows(1), "causal": "bottom_right"}
        self._same(self.sharded, self._normal(4, 1, WIDTH), **options)

    def fork(self):
        made = []

        def is_made():
            # The map may be at the node that was killed: it is asked again.
            with contextlib.suppress(UnavailableError):
                made.append(self.sharded.fork())
            return bool(made)

        wait_until(is_made)
        with made[0] as fork:
            assert len(fork) == len(self.whole)
            self._same(fork, self._normal(4, 2, WIDTH))

    def _same(self, sharded, query, **options):
        answer = sharded.attend(query, **options)
        expected = self.whole.attend(query, **options)
        np.testing.assert_allclose(answer.output, expected.output, rtol=0, atol=1e-6)

    def servers(self):
        """Nodes by how many keys they have, the most first."""
        # By another handle: this one's lengths are a running call's.
        known = self._cluster.open_sequence(self.sharded.name).describe()
        count = {}
        for part in known.ranges:
            for replica in part.replicas:
                count[replica.node] = count.get(replica.node, 0) + part.capacity
        return sorted(count, key=count.get, reverse=True)

    def end(self):
        self.sharded.delete()
        self.whole.delete()


def report(cluster, node):
    return next(one for one in cluster.nodes() if one.node == node)
