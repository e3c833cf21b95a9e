"""A read does not wait for a server that is slow, where another one has the keys."""

import numpy as np
import pytest
import waiting

from attention_client import Client, DeadlineExceededError
from attention_client.ray import hedging, moving

HEADS, WIDTH, KEYS = 2, 16, 700
FORM = {"heads": HEADS, "width": WIDTH}
WARM = 40  # reads, after which it is known what is slow
SOON = 5.0  # seconds; a server that is stopped answers never


class Watched(Client):
    """It keeps the futures of what it sends."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent = []

    def _start(self, *arguments):
        self.sent.append(super()._start(*arguments))
        return self.sent[-1]


pytestmark = pytest.mark.usefixtures("asking")


@pytest.fixture
def sharded(cluster, normal, monkeypatch):
    # What is slow has to be learned from this test's own reads.
    monkeypatch.setattr(cluster, "_recent", hedging.Recent())
    with cluster.sequence(**FORM, range_keys=64, replicas=2) as made:
        made.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        yield made


@pytest.mark.parametrize("number", range(4))
def test_reads_are_answered_by_the_other_replica(cluster, sharded, normal, number):
    query = normal(4, 2, WIDTH)
    for _ in range(WARM):
        expected = sharded.attend(query).output
    with waiting.stopped(cluster.nodes()[number].pid):
        for _ in range(3):
            answer = sharded.attend(query, timeout=SOON)
            np.testing.assert_allclose(answer.output, expected, rtol=0, atol=1e-6)


def test_a_read_goes_on_before_it_is_known_what_is_slow(
    cluster, sharded, normal, monkeypatch
):
    monkeypatch.setattr(hedging, "_UNKNOWN", 0.2)
    query = normal(4, 2, WIDTH)
    expected = sharded.attend(query).output
    for report in cluster.nodes():
        with waiting.stopped(report.pid):
            answer = sharded.attend(query, timeout=SOON)
        np.testing.assert_allclose(answer.output, expected, rtol=0, atol=1e-6)


def test_sinks_count_once_where_others_answer(cluster, sharded, normal):
    options = {"sinks": normal(4), "lse": True}
    query = normal(4, 2, WIDTH)
    for _ in range(WARM):
        expected = sharded.attend(query, **options)
    for report in cluster.nodes():
        with waiting.stopped(report.pid):
            answer = sharded.attend(query, **options, timeout=SOON)
        np.testing.assert_allclose(answer.lse, expected.lse, rtol=1e-6, atol=1e-6)


def test_what_is_answered_later_is_cancelled(cluster, sharded, normal, monkeypatch):
    query = normal(4, 1, WIDTH)
    for _ in range(WARM):
        sharded.attend(query)
    settings = moving.plain(cluster._connect)
    for report in cluster.nodes():
        with (
            Watched(report.target, **settings) as watched,
            monkeypatch.context() as patch,
            waiting.stopped(report.pid),
        ):
            patch.setitem(cluster._clients, report.node, watched)
            sharded.attend(query, timeout=SOON)
            assert all(future.cancelled() for future in watched.sent)
        if watched.sent:
            return
    raise AssertionError("nobody was asked")


def test_appends_go_to_both_and_wait(cluster, sharded, normal):
    for _ in range(WARM):
        sharded.attend(normal(4, 1, WIDTH))
    rows = normal(HEADS, 1, WIDTH), normal(HEADS, 1, WIDTH)
    tail = sharded.describe().ranges[-1].replicas[1].node
    with (
        waiting.stopped(next(o.pid for o in cluster.nodes() if o.node == tail)),
        pytest.raises(DeadlineExceededError),
    ):
        sharded.append(*rows, position=KEYS, timeout=0.5)
    assert sharded.append(*rows, position=KEYS) == KEYS + 1
