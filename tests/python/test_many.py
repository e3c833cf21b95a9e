"""Many requests over one stream."""

import itertools
import threading
import time

import numpy as np
import pytest
from failing_server import refusal

from attention_client import (
    Client,
    DeadlineExceededError,
    InvalidArgumentError,
    Result,
    UnavailableError,
)
from attention_client import client as client_module

LONG = np.ones((1, 400_000, 8), np.float32)
HOURS = dict(query=LONG, key=LONG, value=LONG)  # of work for one processor


def requests(normal, count, **options):
    for length in range(1, count + 1):
        x = normal(1, length, 4)
        yield dict(query=x, key=x, value=x, **options)


def test_results_come_in_the_order_of_the_requests(client, normal):
    asked = list(requests(normal, 100, causal=True))
    results = list(client.attend_many(asked))
    assert [result.id for result in results] == [f"request {n + 1}" for n in range(100)]
    for request, result in zip(asked, results, strict=True):
        np.testing.assert_array_equal(result.output, client.attend(**request).output)


def test_no_more_than_in_flight_are_taken_ahead(client, normal):
    taken = itertools.count()

    def source():
        for request in requests(normal, 20):
            next(taken)
            yield request

    results = client.attend_many(source(), in_flight=3)
    next(results)
    assert next(taken) == 3
    results.close()


def test_a_request_may_follow_from_the_result_before(client, normal):
    results = []

    def source():
        for request in requests(normal, 3):
            assert len(results) == request["query"].shape[1] - 1
            yield request

    for result in client.attend_many(source(), in_flight=1):
        results.append(result)
    assert len(results) == 3


def test_an_error_stands_in_its_place(client, normal):
    good = next(requests(normal, 1))
    asked = [
        good,
        {**good, "key": np.ones((1, 1, 5), np.float32)},
        {**good, "causal": "sideways"},
        {"query": good["query"], "key": good["key"]},
        {**good, "id": "mine"},
        {**good, "id": "mine"},
        {**good, "id": [5]},
        tuple(good.values()),
        None,
        good,
    ]
    outcomes = list(client.attend_many(asked, return_errors=True))
    kinds = [type(outcome) for outcome in outcomes]
    wrong = InvalidArgumentError
    assert kinds == [Result, wrong, wrong, wrong, Result] + [wrong] * 4 + [Result]
    fields = [outcome.field for outcome in outcomes if isinstance(outcome, wrong)]
    assert fields == ["key", "causal", "value", "id", "id", None, None]


def test_a_name_that_was_given_is_not_made_for_another(client, normal):
    named, unnamed = requests(normal, 2)
    results = list(client.attend_many([{**named, "id": "request 2"}, unnamed]))
    assert [result.output.shape[1] for result in results] == [1, 2]
    assert results[0].id == "request 2" != results[1].id


def test_a_refused_request_has_no_name(client, normal):
    good = next(requests(normal, 1))
    asked = [{**good, "id": "refused request 2"}, None]
    outcomes = list(client.attend_many(asked, return_errors=True))
    assert [type(one) for one in outcomes] == [Result, InvalidArgumentError]


@pytest.mark.parametrize(
    "wrong",
    [
        {"casual": True},
        {"causal": [1]},
        {"weights": np.array([1, 2])},
        {"bias": np.ones((1, 1), "M8[s]")},
        {5: True},
    ],
)
def test_what_cannot_be_sent_stands_in_its_place(client, normal, wrong):
    good = next(requests(normal, 1))
    asked = [good, {**good, **wrong}, good]
    outcomes = list(client.attend_many(asked, return_errors=True))
    assert [type(one) for one in outcomes] == [Result, InvalidArgumentError, Result]
    results = client.attend_many(asked)
    assert next(results).output.shape == (1, 1, 4)
    with pytest.raises(InvalidArgumentError):
        next(results)


def test_an_error_is_raised_in_its_turn(client, normal):
    good = next(requests(normal, 1))
    results = client.attend_many([good, {**good, "seed": -1}, good])
    assert next(results).output.shape == (1, 1, 4)
    with pytest.raises(InvalidArgumentError, match="seed"):
        next(results)
    assert next(results, None) is None


def test_nothing_asked_is_nothing_answered(client):
    assert list(client.attend_many([])) == []


def test_large_messages_flow_both_ways(client, normal):
    x = normal(1, 2, 512, 256)  # 1 MiB
    expected = client.attend(x, x, x).output
    asked = [dict(query=x, key=x, value=x)] * 70
    for result in client.attend_many(asked, in_flight=64):
        np.testing.assert_array_equal(result.output, expected)


def test_what_is_no_iterable_starts_nothing(client, normal):
    list(client.attend_many(requests(normal, 1)))
    before = set(threading.enumerate())
    with pytest.raises(TypeError, match="not iterable"):
        next(client.attend_many(5))
    assert set(threading.enumerate()) <= before


def test_without_room_for_its_thread_a_stream_is_cancelled(client, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    class Stream:
        is_cancelled = False

        def cancel(self):
            self.is_cancelled = True

    stream = Stream()
    monkeypatch.setattr(client, "_attend_stream", lambda *_, **__: stream)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        next(client.attend_many([]))
    assert stream.is_cancelled


def test_in_flight_is_checked(client):
    with pytest.raises(ValueError, match="in_flight"):
        next(client.attend_many([], in_flight=0))


def test_a_result_has_the_timeout_that_it_was_given(client):
    with pytest.raises(DeadlineExceededError, match=r"0\.3 s"):
        list(client.attend_many([HOURS], timeout=0.3))


def test_a_result_has_the_clients_timeout(client):
    with (
        Client(client.target, timeout=0.3) as impatient,
        pytest.raises(DeadlineExceededError, match=r"0\.3 s"),
    ):
        list(impatient.attend_many([HOURS]))


def test_a_stream_may_last_longer_than_its_timeout(client, normal):
    timeout = 2.0
    end = time.monotonic() + 1.25 * timeout

    def until_the_end():
        while time.monotonic() < end:
            yield from requests(normal, 3)

    results = list(client.attend_many(until_the_end(), timeout=timeout))
    assert time.monotonic() > end
    assert len(results) % 3 == 0


def test_replies_to_others_leave_a_result_its_timeout(client, normal, monkeypatch):
    class Backwards:
        def __iter__(self):
            return map(refusal, (3, 2, 1))

        def cancel(self):
            pass

    now, passed, given = time.monotonic, 0, []
    take = client_module._next

    def slow(incoming, left, timeout):
        nonlocal passed
        given.append(left)
        passed += 10
        return take(incoming, left, timeout)

    monkeypatch.setattr(client, "_attend_stream", lambda *_, **__: Backwards())
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed)
    monkeypatch.setattr(client_module, "_next", slow)
    asked = requests(normal, 3)
    results = client.attend_many(asked, timeout=30, return_errors=True)
    assert [str(one)[-1] for one in results] == ["1", "2", "3"]
    assert 30 >= given[0] > 20 >= given[1] > 10 >= given[2]


def test_what_ends_a_streams_thread_is_raised(client, normal, monkeypatch):
    class Broken:
        def __iter__(self):
            raise RuntimeError("broken")

        def cancel(self):
            pass

    monkeypatch.setattr(client, "_attend_stream", lambda *_, **__: Broken())
    with pytest.raises(RuntimeError, match="broken"):
        list(client.attend_many(requests(normal, 1), timeout=10))


def test_a_stream_to_nobody_is_unavailable(tmp_path, normal):
    with (
        Client(f"unix:{tmp_path}/nobody") as client,
        pytest.raises(UnavailableError),
    ):
        list(client.attend_many(requests(normal, 3), timeout=10))
