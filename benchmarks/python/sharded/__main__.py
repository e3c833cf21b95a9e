"""See --help."""

import argparse
import contextlib
import os
import statistics
import sys

import numpy as np
from sharded import apart
from sharded.measure import (
    Servers,
    at_once,
    measured,
    most_asked,
    processor_time,
    timed,
)
from sharded.layout import WIDTH, balance, layout
from sharded.parts import LINK, compare_parts, product
from sharded.simulation import QUERY_HEADS, best_groups, simulate, simulate_tree

from attention_client.ray import tree
from attention_client.ray.fanout import merged_arrays

NODES = (1, 2, 3, 4)
COSTS = ("key", "send", "call", "merge", "entry", "sent_entry", "relay")
ENTRIES = 16  # of a step whose entries' cost is measured


def parse():
    parser = argparse.ArgumentParser(
        prog="benchmarks/sharded",
        description="A decoder's step over several servers: measured here, and simulated "
        "for more nodes. Measured are steps over 1 to 4 servers with one thread each, "
        "without Ray, which takes no part in a step. They share this machine's processors "
        "with the client. The simulation takes what a call, a key and a merge cost from "
        "the same rounds, and is first compared with what was measured in them, then asked "
        "for nodes with processors of their own. It says for up to 10^9 keys how "
        "long the kernel, merges, the link and calls take of a step. Last, a client that "
        "asks all servers is compared with a tree of servers that ask others and merge. A "
        "token takes a step for each layer: tokens/s are those of one layer.",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=0.5,
        help="of each figure; default: %(default)s",
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--keys", type=int, default=16384, help="default: %(default)s")
    parser.add_argument(
        "--check",
        type=float,
        metavar="PERCENT",
        help="no more than the first comparison; exits with 1 where a simulated step "
        "differs by more from the measured one",
    )
    parser.add_argument(
        "--apart",
        metavar="SHARE:GBIT",
        help="for the first comparison alone, and with it a tree of the most servers: "
        "gives each server a network namespace of its own, with so many Gbit/s, and so "
        "much of a processor, such as 0.4:1, so that servers do not wait for each other "
        "on a machine of few processors; needs root",
    )
    parser.add_argument(
        "--overhead",
        action="store_true",
        help="nothing but what a step over 2 to 8 servers takes above the slowest one "
        "alone",
    )
    parser.add_argument(
        "--costs",
        nargs="+",
        metavar="NAME=US",
        help="measures nothing, and simulates with these, in microseconds: "
        + ", ".join(COSTS),
    )
    options = parser.parse_args()
    if options.apart is not None:
        try:
            options.apart = tuple(map(float, options.apart.split(":", 1)))
        except ValueError:
            options.apart = ()
        if len(options.apart) != 2 or min(options.apart) <= 0:
            parser.error("--apart: expected SHARE:GBIT, such as 0.4:1")
        if lacks := apart.missing():
            parser.error(f"--apart: this needs {lacks}")
    if options.costs is not None:
        told = dict(one.split("=", 1) for one in options.costs)
        if told.keys() != set(COSTS):
            parser.error(f"--costs: {' '.join(told)} (expected {' '.join(COSTS)})")
        options.costs = {name: float(us) * 1e-6 for name, us in told.items()}
    return options


def normal(*shape, random=np.random.default_rng(seed=1)):
    return random.normal(size=shape).astype(np.float32)


def row(first, seconds, *last):
    """A line of a table: its times in milliseconds."""
    cells = [f"{first}", *(f"{of * 1e3:.2f}" for of in seconds), *last]
    print("| " + " | ".join(cells) + " |")


def overhead(query, options):
    """A table; all of a round in turns, so that a busy moment is everybody's."""
    print("Above the slowest server alone, 64 keys each; ms")
    print(
        "| servers | alone | client asks all | its processor | tree | its processor |"
    )
    print("|---|---|---|---|---|---|")
    for count in (2, 3, 4, 8):
        with Servers(count) as servers:
            step = servers.over(count, count * 64, normal)
            shards = servers.shards(step)
            rounds = []
            for _ in range(options.rounds):
                alone = max(
                    timed(
                        lambda s=s: s.attend(query, lse=True), options.seconds / count
                    )
                    for s in shards
                )
                found = [alone]
                for most in (count, 1):
                    with most_asked(most):
                        took = measured(servers, step, query, options.seconds)
                    found += [took[0] - alone, took[1]]
                rounds.append(found)
        row(count, [statistics.median(of) for of in zip(*rounds, strict=True)])


def most_at_once():
    """Servers that compute at once here: one for each processor."""
    return min(len(os.sched_getaffinity(0)), max(NODES))


def one_round(servers, large, small, cut, query, options):
    """The times of its steps, and the costs that they say."""
    seconds = options.seconds
    steps, floors, alone = {}, {}, {}
    for n in NODES:
        steps[n] = timed(lambda: large[n].attend(query), seconds)
        floors[n] = timed(lambda: small[n].attend(query), seconds)
        alone[n] = max(
            timed(lambda s=shard: s.attend(query, lse=True), seconds / n)
            for shard in servers.shards(large[n])
        )
    # Not by the clock: four servers on few processors wait for each other.
    one, four = (
        processor_time(lambda n=n: small[n].attend(query), seconds) for n in (1, 4)
    )
    parts, lses = normal(16, QUERY_HEADS, 1, WIDTH), np.zeros((16, QUERY_HEADS, 1))
    merge = timed(lambda: merged_arrays(list(parts), lses), seconds / 4) / 16
    costs = {
        "merge": merge,
        "key": (steps[1] - floors[1]) / (options.keys - 64),
        "keys_at_once": at_once(servers, large[most_at_once()], query, seconds),
        "send": max((four - one) / 3 - merge, 0),
    }
    costs["call"] = max(floors[1] - costs["send"] - merge - 64 * costs["key"], 0)
    # Of an entry more: all that it takes, and what the client has of it.
    whole, many = (timed(lambda s=s: s.attend(query), seconds) for s in cut)
    own = [processor_time(lambda s=s: s.attend(query), seconds) for s in cut]
    costs["sent_entry"] = max((own[1] - own[0]) / (ENTRIES - 1) - merge, 0)
    each = (many - whole) / (ENTRIES - 1)
    costs["entry"] = max(each - costs["sent_entry"] - merge, 0)
    return steps, alone, floors, costs


def differing(told, steps):
    """By how much simulated times differ.

    Of each round: what else the machine does changes from one to the next.
    """
    return statistics.median(
        of / step - 1 for of, step in zip(told, steps, strict=True)
    )


def relay_of(flat, of_tree, count):
    """What a server takes of a processor to ask another one.

    flat, of_tree: measured() of so many servers, without and with a tree.
    """
    return (of_tree[2] - flat[2]) / (count - len(tree.groups(range(count))))


def time_tree(servers, large, small, query, seconds):
    """Seconds of a step of the most servers in a tree; what one takes to ask another.

    The latter of a processor.
    """
    most = max(NODES)
    flat = measured(servers, small[most], query, seconds)
    with most_asked(0):
        step = timed(lambda: large[most].attend(query), seconds)
        of_tree = measured(servers, small[most], query, seconds)
        if not servers.ask_each_other():
            sys.exit("sharded: the servers refuse to ask each other")
    return step, relay_of(flat, of_tree, most)


def show_tree(rounds, steps, relay, keys):
    """A line of the first table; by how much the simulation differs."""
    most = max(NODES)
    even = [[keys / most]] * most
    told = [
        simulate_tree(even, {**costs, "relay": relay}, link=(0.0, float("inf")))
        for *_, costs in rounds
    ]
    differs = differing(told, steps)
    step = statistics.median(steps)
    print(
        f"| {most}, a tree | {step * 1e3:.2f} | | | {statistics.median(told) * 1e3:.2f} "
        f"| {1 / step:.3g} | {differs:+.0%} |"
    )
    return abs(differs)


def compare_with_measured(query, options):
    """A table; what a call, a key and a merge cost, and the largest difference."""
    processors = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as made:
        nodes = None
        if options.apart is not None:
            nodes = made.enter_context(apart.Nodes(max(NODES), *options.apart))
        servers = made.enter_context(Servers(max(NODES), nodes))
        made.enter_context(most_asked(max(NODES)))
        large = {n: servers.over(n, options.keys, normal) for n in NODES}
        small = {n: servers.over(n, n * 64, normal) for n in NODES}
        keys = ENTRIES * 64
        cut = [servers.over(1, keys, normal, ranges=n) for n in (1, ENTRIES)]
        rounds, trees = [], []
        for _ in range(options.rounds):
            rounds.append(one_round(servers, large, small, cut, query, options))
            if nodes is not None:
                trees.append(time_tree(servers, large, small, query, options.seconds))
    where = f"{processors} processors"
    if nodes is not None:
        # Each node's processor and link are its own; what they take is in the costs.
        processors = None
        where += ", of which each node has {:g}, and {:g} Gbit/s".format(*options.apart)
    print(f"{options.keys} keys on {where}, ms; the client asks all")
    print(
        "| nodes | step | slowest shard alone | 64 keys each | simulated | tokens/s | "
        "differs |"
    )
    print("|---|---|---|---|---|---|---|")
    most = 0.0
    for n in NODES:
        even = [[options.keys / n]] * n
        told = [simulate(even, of[3], processors) for of in rounds]
        differs = differing(told, [of[0][n] for of in rounds])
        figures = [statistics.median(of[i][n] for of in rounds) for i in range(3)]
        figures.append(statistics.median(told))
        row(n, figures, f"{1 / figures[0]:.3g}", f"{differs:+.0%}")
        most = max(most, abs(differs))
    costs = {
        name: statistics.median(of[3][name] for of in rounds)
        for name in COSTS
        if name != "relay"  # which trees tell
    }
    if trees:
        steps, relays = zip(*trees, strict=True)
        # A node has but a share of a processor for it.
        costs["relay"] = max(statistics.median(relays), 0) / options.apart[0]
        most = max(most, show_tree(rounds, steps, costs["relay"], options.keys))
    return costs, most


def measure_trees(query, options):
    """Tables of steps over many servers; what a server takes for each that it asks."""
    relays = []
    print(
        "| servers | client asks all: ms | its processor | tree: ms | its processor |"
    )
    print("|---|---|---|---|---|")
    for count in (4, 8, 16):
        with Servers(count) as servers:
            step = servers.over(count, count * 64, normal)
            times = {count: [], 0: []}  # by the most that are asked: all, or a tree
            for _ in range(options.rounds):
                for most, found in times.items():
                    with most_asked(most):
                        found.append(measured(servers, step, query, options.seconds))
        flat, of_tree = (
            [statistics.median(one) for one in zip(*found, strict=True)]
            for found in times.values()
        )
        row(count, (*flat[:2], *of_tree[:2]))
        relays.append(relay_of(flat, of_tree, count))
    return max(statistics.median(relays), 0)


def compare_with_tree(costs):
    """A table: the fan-out of a client beside that of a tree."""
    print(f"A client that asks all, and a tree ({costs['relay'] * 1e6:.0f} us), ms")
    print(
        "| nodes | 64 keys each | tree | 16384 keys each | tree | 262144 | tree | "
        "the client asks | best |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes in (4, 8, 16, 32, 64):
        figures = [
            how([[keys]] * nodes, costs, link=LINK)
            for keys in (64, 16384, 262144)
            for how in (simulate, simulate_tree)
        ]
        asked = len(tree.groups(range(nodes)))
        row(nodes, figures, f"{asked}", f"{best_groups(nodes, costs, LINK)}")


def compare_nodes(costs):
    """A table of more nodes and keys than there are here."""
    print(
        "Simulated: nodes with a processor each, a link of 100 us and 25 Gbit/s; "
        "tokens/s of one layer"
    )
    print("| keys | 1 nodes | 8 nodes | 64 nodes | balance at 8 | of linear at 8 |")
    print("|---|---|---|---|---|---|")
    for keys in (10**5, 10**6, 10**7, 10**8, 10**9):
        held = {n: layout(n, keys) for n in (1, 8, 64)}
        of = {n: product(held[n], costs) for n in held}
        shown = " | ".join(f"{1e3 * s:.1f} ms, {1 / s:.3g}/s" for s in of.values())
        print(
            f"| {keys:.0e} | {shown} | {balance(held[8]):.2f} | "
            f"{of[1] / of[8] / 8:.2f} |"
        )


def simulated(costs):
    compare_nodes(costs)
    compare_parts(costs)
    compare_with_tree(costs)


def main():
    options = parse()
    if options.costs is not None:
        return simulated(options.costs)
    query = normal(QUERY_HEADS, 1, WIDTH)
    if options.overhead:
        return overhead(query, options)
    costs, most = compare_with_measured(query, options)
    if options.check is None and options.apart is None:
        costs["relay"] = measure_trees(query, options)
    print("costs in us:", {name: round(of * 1e6, 3) for name, of in costs.items()})
    if options.check is not None or options.apart is not None:
        if options.check is not None and most * 100 > options.check:
            sys.exit(f"sharded: {most:.0%} (at most {options.check:g} %)")
        return None
    return simulated(costs)


if __name__ == "__main__":
    main()
