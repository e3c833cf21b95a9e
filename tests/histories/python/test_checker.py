"""The checker on histories made by hand: wrong ones are refused, right ones are not."""

import unittest

import numpy as np
from checker import check, shrink
from contents import KINDS, Contents, Torn, to_fp8, key_id, rows_of
from meaning import operations_of, problem_of
from operations import FOREVER, Operation

A, B, C, D = (key_id(1, n, 0) for n in range(1, 5))


def op(kind, begin, end, code="OK", **fields):
    return Operation(kind=kind, begin=begin, end=end, code=code, **fields)


def create(begin, end):
    return op("create", begin, end)


def append(begin, end, *keys, **fields):
    return op("append", begin, end, keys=keys, **fields)


def lost(kind, begin, **fields):
    return op(kind, begin, FOREVER, "UNKNOWN", **fields)


def sees(begin, end, *ids, **fields):
    return op("attend", begin, end, seen=ids, **fields)


class Histories(unittest.TestCase):
    def setUp(self):
        self.contents = Contents()

    def right(self, *operations, initial=None):
        if initial is not None:
            initial = self.contents.of(initial)
        self.assertIsNone(check(self.contents, operations, initial))

    def wrong(self, *operations, initial=None, needed=None):
        """`needed`: of so many of them the least history consists."""
        if initial is not None:
            initial = self.contents.of(initial)
        self.assertIsNotNone(check(self.contents, operations, initial))
        shown = [
            one
            for one in shrink(self.contents, list(operations), initial)
            if not one.optional
        ]
        if needed is not None:
            self.assertEqual(len(shown), needed, [str(one) for one in shown])

    # ---- the four faults that matter most

    def test_a_lost_append(self):
        self.right(create(0, 1), append(2, 3, A), append(4, 5, B), sees(6, 7, A, B))
        self.wrong(
            create(0, 1), append(2, 3, A), append(4, 5, B), sees(6, 7, A), needed=2
        )
        self.wrong(create(0, 1), append(2, 3, A), append(4, 5, B), sees(6, 7, B))

    def test_a_lost_append_whose_length_was_told(self):
        self.wrong(
            append(0, 3, A, length=1), append(1, 2, B, length=1), initial=(), needed=2
        )
        self.right(append(0, 3, A, length=2), append(1, 2, B, length=1), initial=())

    def test_a_stale_read(self):
        # Beside the append either is right, after it only one.
        self.right(append(0, 5, A), sees(1, 2), sees(3, 4, A), initial=())
        self.wrong(append(0, 5, A), sees(1, 2, A), sees(3, 4), initial=())
        self.wrong(append(0, 1, A), sees(2, 3), initial=(), needed=2)

    def test_an_append_applied_twice(self):
        self.wrong(append(0, 1, A), sees(2, 3, A, A), initial=(), needed=1)
        self.wrong(lost("append", 0, keys=(A,)), sees(2, 3, A, A), initial=())
        self.wrong(append(0, 1, A), append(2, 3, B, length=3), initial=(), needed=1)
        # Repeated at its position it may not come twice either.
        again = dict(position=0, length=1)
        self.right(
            append(0, 1, A, new_keys=1, **again),
            append(2, 3, A, new_keys=0, **again),
            sees(4, 5, A),
            initial=(),
        )
        self.wrong(
            append(0, 1, A, new_keys=1, **again),
            append(2, 3, A, new_keys=1, **again),
            initial=(),
            needed=2,
        )

    def test_a_torn_read(self):
        # Half of an append.
        self.right(append(0, 9, A, B), sees(1, 2), sees(3, 4, A, B), initial=())
        self.wrong(append(0, 9, A, B), sees(1, 2, A), initial=(), needed=1)
        # Half of a truncate and half of what came then.
        self.wrong(
            op("truncate", 0, 1, wanted=1),
            append(2, 3, C, D),
            sees(0, 4, A, C, B),
            initial=(A, B, D),
        )
        # Bytes of two keys.
        keys = rows_of([A, B])[0]
        self.assertEqual(KINDS[0].ids_of(keys), (A, B))
        keys[1, 3] = keys[0, 3]
        with self.assertRaises(Torn):
            KINDS[0].ids_of(keys)

    def test_torn_keys_of_int8_and_fp8(self):
        for number in (1, 2):
            some = [key_id(1, n, n, number) for n in range(1, 50)]
            keys = rows_of(some)[0]
            self.assertEqual(KINDS[number].ids_of(keys), tuple(some))
            torn = keys.copy()
            torn[1, 3] += keys[1, 0] / 8  # a digit of one key
            with self.assertRaises(Torn):
                KINDS[number].ids_of(torn)
            torn = keys.copy()
            torn[1] *= 2  # with another scale
            with self.assertRaises(Torn):
                KINDS[number].ids_of(torn)

    def test_fp8_is_e4m3(self):
        # Sign, exponent with a bias of 7, three bits of the fraction.
        bits = [0, 0b0_0111_000, 0b0_1000_100, 0b0_1010_111, 0b1_1010_000]
        self.assertEqual(to_fp8(np.array([0, 1, 3, 15, -8])).tolist(), bits)

    def test_a_torn_value(self):
        right = np.zeros((5, 4))
        right[2:] = self.contents.output(self.contents.of((A, B)))
        self.right(op("attend", 0, 1, output=right), initial=(A, B))
        torn = right.copy()
        torn[3, 2] += 2**-6  # one element of one value
        self.wrong(op("attend", 0, 1, output=torn), initial=(A, B))
        self.wrong(op("attend", 0, 1, output=right), initial=(A,))
        self.right(op("attend", 0, 1, output=np.zeros((5, 4))), initial=())

    # ---- what an attend that appends reads

    def test_an_attend_reads_up_to_its_own_keys(self):
        self.right(sees(0, 9, A, B, keys=(B,)), append(0, 9, C, length=3), initial=(A,))
        self.wrong(sees(0, 1, B, keys=(B,)), initial=(A,), needed=1)
        # Repeated, it does not see what came behind its keys.
        again = dict(keys=(B,), position=1)
        self.right(
            sees(0, 1, A, B, **again),
            append(2, 3, C),
            sees(4, 5, A, B, **again),
            sees(6, 7, A, B, C),
            initial=(A,),
        )
        self.wrong(
            sees(0, 1, A, B, **again),
            append(2, 3, C),
            sees(4, 5, A, B, C, **again),
            initial=(A,),
        )

    def test_done_without_an_answer(self):
        done = op("attend", 0, 1, "DONE", keys=(A,))
        self.right(done, sees(2, 3, A), initial=())
        self.wrong(done, sees(2, 3), initial=(), needed=2)

    def test_requests_of_a_stream_keep_their_order(self):
        def turn(n, stream=1):
            return {"turn": (stream, n)}

        first = append(0, 9, A, **turn(0))
        self.right(first, append(0, 9, B, **turn(1)), sees(10, 11, A, B), initial=())
        self.wrong(first, append(0, 9, B, **turn(1)), sees(10, 11, B, A), initial=())
        self.right(first, append(0, 9, B, **turn(1, 2)), sees(10, 11, B, A), initial=())
        self.right(first, sees(0, 9, A, **turn(1)), initial=())
        self.wrong(first, sees(0, 9, **turn(1)), initial=())
        self.right(
            sees(0, 9, A, **turn(0)), sees(0, 9, **turn(1)), append(0, 9, A), initial=()
        )
        # One that is not answered may not have happened, but not later.
        gone = lost("append", 0, keys=(A,), **turn(0))
        self.right(gone, sees(0, 9, **turn(1)), sees(10, 11), initial=())
        self.right(gone, sees(0, 9, A, **turn(1)), sees(10, 11, A), initial=())
        self.wrong(gone, sees(0, 9, **turn(1)), sees(10, 11, A), initial=())

    # ---- unknown outcomes

    def test_unknown_ones_may_happen_late_or_never_but_once(self):
        killed = lost("append", 0, keys=(A,))
        self.right(killed, sees(1, 2), sees(8, 9), initial=())
        self.right(killed, sees(1, 2), sees(8, 9, A), initial=())
        self.wrong(killed, sees(1, 2, A), sees(8, 9), initial=())
        self.wrong(sees(1, 2, A), lost("append", 3, keys=(A,)), initial=())
        # It fits once, and needs what was unknown as well.
        self.right(
            killed,
            lost("append", 0, keys=(B,)),
            append(4, 5, C, length=2),
            append(6, 7, D, length=4),
            sees(8, 9, A, C, B, D),
            initial=(),
        )

    def test_many_unknown_ones_are_checked_in_no_time(self):
        many = [lost("append", n, keys=(key_id(2, n, 0),)) for n in range(0, 80, 2)]
        kept = [append(n, n + 1, A, length=1) for n in range(0, 80, 4)]
        cuts = [op("truncate", n, n + 1, wanted=0) for n in range(2, 80, 4)]
        self.right(*many, *kept, *cuts, sees(80, 81), initial=())
        self.wrong(*many, *kept, *cuts, sees(80, 81, A, B), initial=())

    # ---- errors, truncate, delete, fork

    def test_errors_need_a_moment_at_which_they_are_right(self):
        gap = dict(code="OUT_OF_RANGE", position=2)
        self.right(append(0, 1, B, length=1, **gap), initial=(A,))
        self.wrong(append(0, 1, C, length=2, **gap), initial=(A, B))
        other = dict(code="ABORTED", position=0)
        self.right(append(0, 1, B, length=1, **other), initial=(A,))
        self.wrong(append(0, 1, A, length=1, **other), initial=(A,))
        self.wrong(append(0, 1, A, code="NOT_FOUND"), initial=())
        self.right(append(0, 1, A, code="NOT_FOUND"))
        self.wrong(op("create", 0, 1, "ALREADY_EXISTS"))

    def test_truncate_and_delete(self):
        cut = op("truncate", 0, 1, wanted=1)
        self.right(cut, sees(2, 3, A), initial=(A, B))
        self.wrong(cut, sees(2, 3, A, B), initial=(A, B), needed=2)
        self.wrong(op("truncate", 0, 1, wanted=3), initial=(A, B))
        gone = op("delete", 0, 1, deleted=1)
        self.right(gone, sees(0, 2, A), create(2, 3), sees(4, 5), initial=(A,))
        self.wrong(gone, create(2, 3), sees(4, 5, A), initial=(A,))
        self.wrong(gone, op("delete", 2, 3, deleted=1), initial=(A,))

    def test_forks(self):
        fork = op("fork", 0, 3, seen=(A, B))
        self.right(fork, append(1, 2, B), initial=(A,))
        self.wrong(fork, append(4, 5, B), initial=(A,))
        self.wrong(op("fork", 0, 3, seen=(A, B), wanted=1), initial=(A, B))
        self.right(op("born", 0, 1, seen=(A,)), append(2, 3, B), sees(4, 5, A, B))
        self.wrong(op("born", 0, 1, seen=(A,)), append(2, 3, B), sees(4, 5, A, C))


class Meaning(unittest.TestCase):
    def operations(self, calls, answer):
        return list(operations_of(calls, 1, 2, answer, {"x": 1, "y": 2}.get, "1"))

    def test_a_killed_call_is_unknown_and_a_killed_read_nothing(self):
        calls = [{"kind": "append", "name": "x", "layer": 0, "keys": (A,)}]
        ((name, layer, one),) = self.operations(calls, None)
        self.assertEqual((name, layer, one.optional), ("x", 0, True))
        calls[0] = {"kind": "attend", "name": "x", "layer": 0}
        self.assertEqual(self.operations(calls, None), [])

    def test_entries_before_the_one_at_fault_may_be_appended(self):
        calls = [
            {"kind": "attend", "name": "x", "layer": 0, "keys": (key,)}
            for key in (A, B, C)
        ]
        details = "sequences.entries[1]: position: 3 leaves a gap, there are 2 keys"
        answer = {"code": "OUT_OF_RANGE", "details": details}
        first, second = (one for _, _, one in self.operations(calls, answer))
        self.assertTrue(first.optional)
        self.assertEqual((second.keys, second.length), ((B,), 2))

    def test_all_layers(self):
        calls = [{"kind": "truncate", "name": "y", "wanted": 1}]
        answer = {"code": "OK", "details": "", "results": [{}]}
        layers = [layer for _, layer, _ in self.operations(calls, answer)]
        self.assertEqual(layers, [0, 1])

    def test_codes_that_nobody_may_get(self):
        calls = [{"kind": "attend", "name": "x", "layer": 0}]
        answer = {"code": "ABORTED", "details": "why"}
        self.assertIn("ABORTED", problem_of(calls, answer))
        calls[0]["keys"] = (A,)
        self.assertIsNone(problem_of(calls, answer))
        answer["code"] = "INTERNAL"
        self.assertIsNotNone(problem_of(calls, answer))


if __name__ == "__main__":
    unittest.main()
