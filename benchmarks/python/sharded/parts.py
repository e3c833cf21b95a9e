"""Of what a step consists: which part takes longest for how many keys."""

from sharded.layout import layout
from sharded.simulation import simulate, simulate_tree

from attention_client.ray import tree

LINK = (100e-6, 25e9 / 8)  # seconds of a round trip, bytes a second
_NO_LINK = (0.0, float("inf"))
# Of costs; the link is no cost of these.
_PARTS = {
    "kernel": ("key",),
    "merge": ("merge", "relay"),
    "call": ("send", "call", "entry", "sent_entry"),
}
NAMES = ("kernel", "merge", "link", "call")


def product(held, costs, link=LINK):
    """Seconds of a step as a program takes it: with a tree from so many servers on.

    Servers without keys are not asked.
    """
    held = [ranges for ranges in held if ranges]
    how = simulate_tree if len(held) > tree.MOST_ASKED else simulate
    return how(held, costs, link=link)


def breakdown(held, costs):
    """A step's seconds; for each part, by how much it is shorter without it.

    relay: what a server takes to ask another one and to merge its answer.
    """
    whole = product(held, costs)
    parts = {
        name: whole - product(held, {**costs, **dict.fromkeys(of, 0)})
        for name, of in _PARTS.items()
    }
    parts["link"] = whole - product(held, costs, _NO_LINK)
    return whole, parts


def takes_over(nodes, costs):
    """Keys from which on the kernel takes longer than any other part."""
    keys = 64
    while True:
        _, parts = breakdown(layout(nodes, keys), costs)
        if parts["kernel"] >= max(parts.values()):
            return keys
        keys *= 2


def compare_parts(costs):
    """A table up to 10^9 keys, for 1, 8 and 64 nodes."""
    print("Simulated: a step of one layer, its tokens/s, and what parts of it take; ms")
    print("| nodes | keys | step | " + " | ".join(NAMES) + " | tokens/s | longest |")
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes in (1, 8, 64):
        for keys in (10**power for power in range(3, 10)):
            whole, parts = breakdown(layout(nodes, keys), costs)
            cells = [f"{1e3 * of:.2f}" for of in (whole, *map(parts.get, NAMES))]
            cells += [f"{1 / whole:.3g}", max(parts, key=parts.get)]
            print(f"| {nodes} | {keys:.0e} | " + " | ".join(cells) + " |")
    for nodes in (1, 8, 64):
        keys = takes_over(nodes, costs)
        print(f"{nodes} nodes: from {keys} keys on the kernel takes longest")
