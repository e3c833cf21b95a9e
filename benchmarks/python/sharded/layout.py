"""Which keys each server has, as the product places them."""

from attention_client.info import SequenceForm
from attention_client.ray.ranges import Range, Replica, SequenceMap, capacity, in_order

HEADS, WIDTH = 8, 128
_FORM = SequenceForm(HEADS, WIDTH, WIDTH, "float32", 1)


def layout(nodes, keys, rows=4096, range_keys=4096):
    """Of each node, the keys of each of its ranges, where so many rows come at a time."""
    names = [str(number) for number in range(nodes)]
    known = SequenceMap("", _FORM, 1, range_keys, 0, ())
    while known.end < keys:
        end = min(keys, (known.end // rows + 1) * rows)
        size = capacity(known, end, nodes)
        node = in_order(known, size, dict.fromkeys(names, size))[0]
        part = Range(known.end, size, (Replica(node, ""),))
        known = known.changed([*known.ranges, part])
    held = {name: [] for name in names}
    for part in known.ranges:
        held[part.replicas[0].node].append(part.count(keys))
    return list(held.values())


def balance(held):
    """What the busiest node would have of even shares, in what it has."""
    shares = [sum(ranges) for ranges in held]
    return sum(shares) / len(shares) / max(shares)
