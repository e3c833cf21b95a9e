"""Whether some legal order of operations gives the answers that they got.

The search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with the
memory of Lowe ("Testing for linearizability", 2017): it puts one operation after the
other into an order, always one that began before all that are left have ended, and
never comes to the same set of them and the same state twice. What keeps it short:
  * An operation that changes nothing and is legal now is taken at once, without another
    try: whatever order there is, it can be moved here.
  * One whose outcome is unknown may be left out. Of two ways to the same set of the
    others, and the same state, the one that has used fewer of these is as good.
  * Such an append is taken only where something that may come next needs more keys:
    else it can be moved behind that, or be left out where that cuts its keys off.
"""

import heapq
import time
from dataclasses import dataclass, replace

from operations import FOREVER, ILLEGAL

MOST_STEPS = 500_000
# So many operations less are as good as one unknown operation more: it is seldom that
# these have happened.
PRICE = 20
NO_ANSWER = dict.fromkeys(("length", "new_keys", "deleted", "read", "seen", "output"))


class Undecided(Exception):
    """There are too many orders."""


@dataclass
class Dead:
    """Where the order that got farthest ends."""

    state: object
    done: list  # the operations of it
    next: list  # none of which is legal then


def check(contents, operations, initial=None, most_steps=MOST_STEPS):
    """None, or Dead: there is no order. `initial` is the state before."""
    return _Search(contents, operations, initial).run(most_steps)


class _Search:
    def __init__(self, contents, operations, initial):
        self._contents = contents
        self._initial = initial
        ordered = sorted(operations, key=lambda op: op.begin)
        self._definite = [op for op in ordered if not op.optional]
        self._optional = [op for op in ordered if op.optional]
        self._all = (1 << len(self._definite)) - 1
        self._order_streams()
        self._seen = {}
        self._open, self._added = [], 0
        self._farthest, self._most = None, -1

    def _order_streams(self):
        """For each operation, which ones must not come behind it, or before it."""
        streams = {}
        for op in [*self._definite, *self._optional]:
            if op.turn is not None:
                streams.setdefault(op.turn[0], []).append(op)

        def mask(of, related):
            some = {id(op) for op in related}
            return sum(1 << i for i, op in enumerate(of) if id(op) in some)

        def related(op):
            others = streams[op.turn[0]] if op.turn is not None else ()
            before = [other for other in others if other.comes_before(op)]
            behind = [other for other in others if op.comes_before(other)]
            if not before and not behind:
                return 0, 0, 0, 0
            return (
                mask(self._definite, before),
                mask(self._optional, before),
                mask(self._definite, behind),
                mask(self._optional, behind),
            )

        self._around_definite = [related(op) for op in self._definite]
        self._around_optional = [related(op) for op in self._optional]

    def run(self, most_steps):
        self._add(0, 0, self._initial, 0)
        for _ in range(most_steps):
            if not self._open:
                return self._dead()
            *_, done, used, state, low = heapq.heappop(self._open)
            done, low, candidates, first_end = self._take_all(done, used, state, low)
            if done == self._all:
                return None
            if not self._is_new(done, used, state):
                continue
            count = done.bit_count()
            if count > self._most:
                self._most, self._farthest = count, (state, done, used, candidates)
            for i in candidates:
                if self._around_definite[i][0] & ~done:
                    continue
                after = self._definite[i].apply(self._contents, state)
                if after is not ILLEGAL:
                    self._add(done | 1 << i, used, after, low, self._definite[i].end)
            for i, op in enumerate(self._optional):
                if op.begin > first_end:
                    break
                before, _, behind, behind_too = self._around_optional[i]
                if used >> i & 1 or before & ~done or behind & done or behind_too & used:
                    continue
                after = op.apply(self._contents, state)
                if after is ILLEGAL or after == state:
                    continue
                if not op.grows or self._helps(state, after, candidates, used, first_end):
                    self._add(done, used | 1 << i, after, low)
        raise Undecided(f"{len(self._definite)} operations, {most_steps} steps")

    def _dead(self):
        state, done, used, candidates = self._farthest
        placed = [op for i, op in enumerate(self._definite) if done >> i & 1]
        placed += [op for i, op in enumerate(self._optional) if used >> i & 1]
        return Dead(state, placed, [self._definite[i] for i in candidates])

    def _add(self, done, used, state, low, end=FOREVER):
        """To what is tried, the most promising first: those with many operations done and
        few unknown ones used; of equal ones that whose last one has ended first."""
        cost = PRICE * used.bit_count() - done.bit_count()
        self._added += 1
        heapq.heappush(self._open, (cost, end, -self._added, done, used, state, low))

    def _take_all(self, done, used, state, low):
        """With what changes nothing and is legal; those that may be next otherwise."""
        while True:
            while done >> low & 1:
                low += 1
            first_end = FOREVER
            candidates = []
            for i in range(low, len(self._definite)):
                op = self._definite[i]
                if op.begin > first_end:
                    break
                if not done >> i & 1:
                    first_end = min(first_end, op.end)
                    candidates.append(i)
            candidates = [i for i in candidates if self._definite[i].begin <= first_end]
            taken = 0
            for i in candidates:
                op = self._definite[i]
                before, before_too, *_ = self._around_definite[i]
                # What may still come before it on its stream could not do so then.
                if op.changes_nothing and not before & ~done and not before_too & ~used:
                    if op.apply(self._contents, state) is not ILLEGAL:
                        taken |= 1 << i
            if not taken:
                return done, low, candidates, first_end
            done |= taken

    def _helps(self, state, after, candidates, used, first_end):
        """Whether one of those that may come next needs more keys than there are."""
        length = self._contents.length(state)
        for i in candidates:
            op = self._definite[i]
            if op.helped_up_to() > length and op.could_grow_from(self._contents, after):
                return True
        for i, op in enumerate(self._optional):
            if op.begin > first_end:
                return False
            if not used >> i & 1 and op.helped_up_to() > length:
                return True
        return False

    def _is_new(self, done, used, state):
        before = self._seen.setdefault((done, state), [])
        if any(one & used == one for one in before):
            return False
        before[:] = [one for one in before if one & used != used]
        before.append(used)
        return True


def shrink(contents, operations, initial=None, seconds=20):
    """Of a wrong history what is needed for it to be wrong, as far as that is found in the
    time. What it may have done without makes the rest optional."""
    give_up = time.monotonic() + seconds

    def wrong(some):
        try:
            return check(contents, some, initial, most_steps=5000) is not None
        except Undecided:
            return False

    def without(some, dropped):
        """They may have happened or not; of those that change nothing that says nothing."""
        kept = [op for op in some if op not in dropped]
        weaker = [
            replace(op, end=FOREVER)
            for op in some
            if op in dropped and not op.optional and not op.changes_nothing
        ]
        return kept + weaker

    # Up to the first moment at which it is wrong: what has not ended by then is unknown.
    def until(end):
        return [
            op if op.end <= end else replace(op, end=FOREVER, code="UNKNOWN", **NO_ANSWER)
            for op in operations
            if op.begin <= end and (op.end <= end or not op.changes_nothing)
        ]

    ends = sorted(op.end for op in operations if not op.optional)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if wrong(until(ends[middle])):
            high = middle
        else:
            low = middle + 1
    operations = until(ends[low])
    # Many at once, then fewer: first those that change nothing, which makes it quick.
    for may_go in (
        lambda op: op.changes_nothing,
        lambda op: not op.changes_nothing and (not op.optional or op.code == "UNKNOWN"),
    ):
        size = len(operations) // 2
        while size:
            left = sorted(filter(may_go, operations), key=lambda op: op.end)
            for at in range(0, len(left), size):
                if time.monotonic() > give_up:
                    return sorted(operations, key=lambda op: op.begin)
                rest = without(operations, left[at : at + size])
                if wrong(rest):
                    operations = rest
            size //= 2
    return sorted(operations, key=lambda op: op.begin)
