"""Discrete events of a step: sends, kernels, answers, merges."""

import heapq

from sharded.layout import WIDTH

from attention_client.ray import tree

QUERY_HEADS = 32
BYTES = QUERY_HEADS * (WIDTH + 1) * 4  # of a query, and of an answer with its lse


class Processors:
    """So many, which do one thing after the other; None: as many as are wanted."""

    def __init__(self, count):
        self._free = None if count is None else [0.0] * count

    def client(self, ready, seconds):
        """When the client has done this. It goes before servers that compute.

        As the system has it: what has slept for longer goes first.
        """
        if self._free is not None:
            at = min(range(len(self._free)), key=self._free.__getitem__)
            self._free[at] = max(ready, self._free[at]) + seconds
        return ready + seconds

    def server(self, ready, seconds, number):
        """When that server has done this, on the processor that it is kept to."""
        if self._free is None:
            return ready + seconds
        at = number % len(self._free)
        self._free[at] = max(ready, self._free[at]) + seconds
        return self._free[at]


def simulate(held, costs, processors=None, link=None):
    """Seconds of a step: events of sends, kernels, answers and the merge.

    held: of each server, the keys of each of its ranges, which are an entry each.
    processors: that the client and its servers share; None: each has its own. link:
    (seconds of a round trip, bytes a second); None: one machine.
    """
    there, rate = (link[0] / 2, link[1]) if link else (0.0, float("inf"))
    is_shared = processors is not None and len(held) > 1
    rates = costs["keys_at_once"] if is_shared else [costs["key"]]
    pool = Processors(processors)
    answers = []
    events = [(0.0, "send", 0)]
    while events:
        now, what, node = heapq.heappop(events)
        entries = len(held[node])
        if what == "send":
            own = costs["send"] + (entries - 1) * costs["sent_entry"]
            sent = pool.client(now, own) + BYTES / rate
            heapq.heappush(events, (sent + there, "serve", node))
            if node + 1 < len(held):
                heapq.heappush(events, (sent, "send", node + 1))
        else:
            own = _served(held[node], costs, rates[node % len(rates)])
            done = pool.server(now, costs["call"] + own, node)
            answers.append((done + there, entries))
    end = 0.0
    for answer, entries in sorted(answers):
        end = max(end, answer) + entries * BYTES / rate
    return end + costs["merge"] * sum(map(len, held))


def simulate_tree(held, costs, link, groups=None):
    """Seconds of a step in which the client asks some servers, and they the others.

    A server takes costs["relay"] for each one that it asks, its answer included, and
    merges its own entries. held: as of simulate(). groups: how many the client asks;
    None: as tree.groups() has it.
    """
    there, wire = link[0] / 2, BYTES / link[1]
    if groups is None:
        groups = len(tree.groups(held))
    client = 0.0
    answers = []
    for first, *others in (held[group::groups] for group in range(groups)):
        entries = len(first) + sum(map(len, others))
        client += costs["send"] + (entries - 1) * costs["sent_entry"] + wire
        sent = client + there + costs["call"]
        merged = sent + _served(first, costs, costs["key"])
        for other in others:
            sent += costs["relay"] + wire
            own = costs["call"] + _served(other, costs, costs["key"])
            merged = max(merged, sent + 2 * there + own + wire)
        answers.append(merged + there)
    for answer in sorted(answers):
        client = max(client, answer) + wire
    return client + costs["merge"] * groups


def _served(ranges, costs, key):
    """Seconds that a server computes for its ranges."""
    return sum(ranges) * key + (len(ranges) - 1) * costs["entry"]


def best_groups(nodes, costs, link):
    """How many servers a client should ask where steps are short."""
    held = [[64]] * nodes

    def took(groups):
        return simulate_tree(held, costs, link, groups)

    return min(range(1, nodes + 1), key=took)
