"""What the calls of a history mean for one layer of one sequence.

A state is None where there is no such sequence, else a number of Contents.
"""

from dataclasses import dataclass, field
from typing import Any

from contents import describe

FOREVER = float("inf")
ILLEGAL = object()  # no state


@dataclass(frozen=True)
class Operation:
    # create, delete, append, attend, truncate, describe, fork, born
    kind: str
    begin: float
    # FOREVER where the outcome is unknown: it has happened at some time, or never.
    end: float
    # OK, NOT_FOUND, ...; where the answer is lost and it has happened for certain: DONE
    # with an end, and without one UNKNOWN.
    code: str
    keys: tuple = ()  # ids that append and attend bring
    position: Any = None  # where they put them; None: behind the last key
    wanted: Any = None  # truncate, fork: the length that is asked for; None: all
    length: Any = None  # that the answer told
    new_keys: Any = None
    deleted: Any = None
    read: Any = None  # how many keys an attend has read
    seen: Any = None  # ids that the answer shows
    output: Any = field(default=None, compare=False)  # of all queries
    client: str = ""
    # Of a stream: which, and which of its requests. They run in their order
    # where one of two appends.
    turn: Any = None

    @property
    def optional(self):
        return self.end == FOREVER

    @property
    def changes_nothing(self):
        """Whatever there is, where the answer is right."""
        if self.code not in ("OK", "DONE", "UNKNOWN"):
            return True
        if self.kind in ("describe", "fork"):
            return True
        if self.kind == "attend" and not self.keys:
            return True
        return self.new_keys == 0 or self.deleted == 0

    def comes_before(self, other):
        """On one stream."""
        return (
            None not in (self.turn, other.turn)
            and self.turn[0] == other.turn[0]
            and self.turn[1] < other.turn[1]
            and bool(self.keys or other.keys)
        )

    @property
    def grows(self):
        return bool(self.keys)

    def apply(self, contents, state):
        """The state afterwards, or ILLEGAL: in this state it has no such answer."""
        return _RULES[self.kind](self, contents, state)

    def helped_up_to(self):
        """Where the sequence must grow for this to be legal, or for it to leave another
        state, the length up to which that can help; -1 where it cannot."""
        if self.kind in ("truncate", "fork") and self.wanted is not None:
            return self.wanted if self.code != "OUT_OF_RANGE" else self.length or -1
        if self.kind in ("create", "born", "delete") or self.code == "NOT_FOUND":
            return -1
        if self.kind in ("describe", "fork"):
            length = self.length if self.seen is None else len(self.seen)
            return FOREVER if length is None else length
        if self.code in ("ABORTED", "OUT_OF_RANGE"):
            return FOREVER if self.length is None else self.length
        if self.length is not None and (self.position is None or self.new_keys is not None):
            new_keys = len(self.keys) if self.new_keys is None else self.new_keys
            return self.length - new_keys
        if not self.keys:
            return FOREVER if self.read is None else self.read
        if self.position is not None:
            return self.position + len(self.keys)
        if self.optional:
            return -1
        return FOREVER if self.read is None else self.read - len(self.keys)

    def could_grow_from(self, contents, state):
        """False where what is shown does not begin with this state."""
        if self.seen is None or self.keys or self.kind == "born":
            return True
        if self.wanted is not None:
            return True
        shown = contents.of(self.seen)
        length = contents.length(state)
        return length <= len(self.seen) and contents.first(shown, length) == state

    def __str__(self):
        text = self.kind
        if self.keys:
            text += f" {_span(self.keys)}"
        for name in ("position", "wanted"):
            if getattr(self, name) is not None:
                text += f" {name} {getattr(self, name)}"
        text += f" -> {self.code}"
        for name in ("length", "new_keys", "deleted", "read"):
            if getattr(self, name) is not None:
                text += f" {name} {getattr(self, name)}"
        if self.seen is not None:
            text += f" sees {len(self.seen)}: {_span(self.seen)}"
        elif self.output is not None:
            text += " sees an output"
        return text


def _span(ids):
    words = [describe(one) for one in ids]
    if len(words) > 12:
        words = [*words[:3], f"({len(words) - 9} more)", *words[-6:]]
    return " ".join(words)


def _told(contents, state, length):
    return length is None or contents.length(state) == length


def _create(op, _contents, state):
    if op.code == "ALREADY_EXISTS":
        return state if state is not None else ILLEGAL
    return 0 if state is None else ILLEGAL


def _born(op, contents, state):
    return contents.of(op.seen) if state is None else ILLEGAL


def _delete(op, _contents, state):
    if op.deleted is None:  # unknown, or done
        return None
    return None if op.deleted == (state is not None) else ILLEGAL


def _describe(op, contents, state):
    if op.code == "NOT_FOUND":
        return state if state is None else ILLEGAL
    if state is None:
        return ILLEGAL
    return state if _told(contents, state, op.length) else ILLEGAL


def _truncate(op, contents, state):
    if op.code == "NOT_FOUND":
        return state if state is None else ILLEGAL
    if state is None:
        return ILLEGAL
    enough = contents.length(state) >= op.wanted
    if op.code == "OUT_OF_RANGE":
        # Without a length, another layer may have been too short.
        too_short = op.length is None or (
            not enough and contents.length(state) == op.length
        )
        return state if too_short else ILLEGAL
    return contents.first(state, op.wanted) if enough else ILLEGAL


def _fork(op, contents, state):
    """Of the sequence that is forked."""
    if op.code == "NOT_FOUND":
        return state if state is None else ILLEGAL
    if state is None:
        return ILLEGAL
    length = contents.length(state)
    wanted = length if op.wanted is None else op.wanted
    if op.code == "OUT_OF_RANGE":
        too_short = op.length is None or (length < wanted and length == op.length)
        return state if too_short else ILLEGAL
    if op.code == "ALREADY_EXISTS":
        return state
    if length < wanted:
        return ILLEGAL
    if op.seen is not None and contents.of(op.seen) != contents.first(state, wanted):
        return ILLEGAL
    return state


def _append(op, contents, state):
    after, _ = _put(op, contents, state)
    return after


def _put(op, contents, state):
    """The state afterwards, and what an attend reads then."""
    if op.code == "NOT_FOUND":
        return (state if state is None else ILLEGAL), None
    if state is None:
        return ILLEGAL, None
    length = contents.length(state)
    position = length if op.position is None else op.position
    if op.code == "OUT_OF_RANGE":
        told = position > length and _told(contents, state, op.length)
        return (state if told else ILLEGAL), None
    if position > length:
        return ILLEGAL, None
    end = position + len(op.keys)
    taken = min(length, end)
    same = contents.append(
        contents.first(state, position), op.keys[: taken - position]
    ) == contents.first(state, taken)
    if op.code == "ABORTED":
        told = not same and _told(contents, state, op.length)
        return (state if told else ILLEGAL), None
    if not same:
        return ILLEGAL, None
    after = state if end <= length else contents.append(state, op.keys[taken - position :])
    if not _told(contents, after, op.length):
        return ILLEGAL, None
    if op.new_keys is not None and op.new_keys != end - taken:
        return ILLEGAL, None
    return after, contents.first(after, end)


def _attend(op, contents, state):
    if op.keys:
        after, read = _put(op, contents, state)
    elif op.code == "NOT_FOUND":
        return state if state is None else ILLEGAL
    else:
        after = read = ILLEGAL if state is None else state
    if after is ILLEGAL or read is None:
        return after
    if op.read is not None and contents.length(read) != op.read:
        return ILLEGAL
    if op.seen is not None and contents.of(op.seen) != read:
        return ILLEGAL
    if op.output is not None and not contents.gives(read, op.output):
        return ILLEGAL
    return after


_RULES = {
    "create": _create,
    "born": _born,
    "delete": _delete,
    "describe": _describe,
    "truncate": _truncate,
    "fork": _fork,
    "append": _append,
    "attend": _attend,
}
