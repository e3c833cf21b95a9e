"""Discrete events of a step: sends, kernels, answers, merges."""

import heapq

from attention_client.ray import tree

HEADS, QUERY_HEADS, WIDTH = 8, 32, 128
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


def simulate(nodes, keys, costs, processors=None, link=None):
    """Seconds of a step: events of sends, kernels, answers and the merge.

    processors: that the client and its servers share; None: each has its own. link:
    (seconds of a round trip, bytes a second); None: one machine.
    """
    there, rate = (link[0] / 2, link[1]) if link else (0.0, float("inf"))
    is_shared = processors is not None and nodes > 1
    rates = costs["keys_at_once"] if is_shared else [costs["key"]]
    pool = Processors(processors)
    answers = []
    events = [(0.0, "send", 0)]
    while events:
        now, what, node = heapq.heappop(events)
        if what == "send":
            sent = pool.client(now, costs["send"]) + BYTES / rate
            heapq.heappush(events, (sent + there, "serve", node))
            if node + 1 < nodes:
                heapq.heappush(events, (sent, "send", node + 1))
        else:
            own = costs["call"] + keys / nodes * rates[node % len(rates)]
            done = pool.server(now, own, node)
            answers.append(done + there)
    end = 0.0
    for answer in sorted(answers):
        end = max(end, answer) + BYTES / rate
    return end + costs["merge"] * nodes


def simulate_tree(nodes, keys, costs, link, groups=None):
    """Seconds of a step in which the client asks some servers, and they the others.

    A server takes costs["relay"] for each one that it asks, its answer included.
    groups: how many the client asks; None: as tree.groups() has it.
    """
    there, wire = link[0] / 2, BYTES / link[1]
    own = keys / nodes * costs["key"]
    groups = groups or len(tree.groups(range(nodes)))
    client = 0.0
    answers = []
    for group in range(groups):
        client += costs["send"] + wire
        sent = begun = client + there + costs["call"]
        merged = begun + own
        for _ in range((nodes - group - 1) // groups):
            sent += costs["relay"] + wire
            merged = max(merged, sent + 2 * there + costs["call"] + own + wire)
        answers.append(merged + there)
    for answer in sorted(answers):
        client = max(client, answer) + wire
    return client + costs["merge"] * groups


def best_groups(nodes, costs, link):
    """How many servers a client should ask where steps are short."""

    def took(groups):
        return simulate_tree(nodes, 64 * nodes, costs, link, groups)

    return min(range(1, nodes + 1), key=took)
