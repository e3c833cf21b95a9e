"""Servers that say nothing: they hang, or their machine is gone without a reset.

A server that is stopped keeps its connections, as such a machine does.
"""

import time

import pytest
from at_nodes import actor_of, asked
from waiting import stopped, wait_for_nodes, wait_until

from attention_client import DeadlineExceededError, UnavailableError
from attention_client.ray import AttentionCluster, moving, node, watching

HEADS, WIDTH, KEYS = 2, 16, 100
MOST = 45  # seconds, docs/scaling.md says
# As gRPC words it where nobody answers for a machine's address.
NO_ROUTE = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.9.0.2:9: "
    "connect: No route to host (113)"
)
RESET = "recvmsg:Connection reset by peer"


def start(connect, replicas, normal):
    """A cluster, and a sequence at some of its servers."""
    cluster = AttentionCluster(3, name="silent", cpus=0, connect=connect)
    rows = normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH)
    sequence = cluster.sequence(heads=HEADS, width=WIDTH, replicas=replicas)
    sequence.append(*rows)
    return cluster, sequence


@pytest.fixture
def silent(ray_cluster, normal):
    """All that waits for a silent server is soon over."""
    names = "keepalive_time_ms", "keepalive_timeout_ms", "http2.ping_timeout_ms"
    options = [(f"grpc.{name}", 1000) for name in names]

    def hurry(_):
        node._ANSWER, watching._SERVES = 0.3, 3.0

    cluster, sequence = start({"options": options}, 2, normal)
    with cluster:
        asked(cluster._map, hurry)
        for one in cluster.nodes():
            asked(actor_of(one.node), hurry)
        yield cluster, sequence


def first_and_second(cluster, sequence):
    """Reports of the servers that have its range."""
    (part,) = sequence.describe().ranges
    nodes = {one.node: one for one in cluster.nodes()}
    return [nodes[replica.node] for replica in part.replicas]


@pytest.mark.parametrize("number", [0, 1])
def test_appends_go_on_without_a_silent_server(silent, normal, number):
    cluster, sequence = silent
    row = normal(HEADS, 1, WIDTH)
    victim = first_and_second(cluster, sequence)[number]
    with stopped(victim.pid):
        assert sequence.append(row, row) == KEYS + 1
        (part,) = sequence.describe().ranges
        assert victim.node not in [one.node for one in part.replicas]


def test_a_server_that_was_silent_is_started_anew(silent, normal):
    cluster, sequence = silent
    row = normal(HEADS, 1, WIDTH)
    victim, _ = first_and_second(cluster, sequence)
    with stopped(victim.pid):
        sequence.append(row, row)
        wait_until(lambda: victim.pid not in [one.pid for one in cluster.nodes()])
        wait_for_nodes(cluster, 3)


def test_a_machine_is_gone_where_server_and_actor_are_silent(silent, normal):
    cluster, sequence = silent
    row = normal(HEADS, 1, WIDTH)
    victim, _ = first_and_second(cluster, sequence)

    def lose_actor(of):
        ask = moving.ask

        def silent(actor, method, *arguments, **options):
            if method == "serves":
                raise DeadlineExceededError("silent")
            return ask(actor, method, *arguments, **options)

        moving.ask = silent

    asked(cluster._map, lose_actor)
    with stopped(victim.pid):
        assert sequence.append(row, row) == KEYS + 1


def test_a_server_that_is_late_keeps_its_keys(silent, normal):
    cluster, sequence = silent
    victim, _ = first_and_second(cluster, sequence)

    def look(of):
        health, late = node.Client.health, [0, 0]

        def after_two(client, **options):
            if late:
                late.pop()
                raise DeadlineExceededError("late")
            return health(client, **options)

        node.Client.health = after_two
        try:
            return of._watch.check(victim.node)
        finally:
            node.Client.health = health

    assert not asked(cluster._map, look)


@pytest.fixture
def said(monkeypatch):
    """said(outcomes): what answers() makes of them; how many it has waited for."""

    def answers(*outcomes):
        left = list(outcomes)

        def health(client, **options):
            outcome = left.pop(0)
            if outcome is not None:
                raise outcome
            return "SERVING"

        monkeypatch.setattr(node.Client, "health", health)
        monkeypatch.setattr(node, "_PAUSE", 0)
        result = node.answers("127.0.0.1:1", {})
        return result, len(outcomes) - len(left)

    return answers


def test_a_machine_to_which_there_is_no_way_is_silent(said):
    late, away = DeadlineExceededError("late"), UnavailableError(NO_ROUTE)
    assert said(late, away, away) == (None, 3)


def test_a_server_that_answers_after_a_reset_serves(said):
    assert said(UnavailableError(RESET), None) == (True, 2)


def test_a_machine_on_which_nobody_listens_says_so_at_once(monkeypatch):
    monkeypatch.setattr(node, "_ASKED", 1 << 30)
    assert node.answers("127.0.0.1:1", {}) is False


def test_a_machine_that_nobody_can_reach_is_given_up(silent):
    cluster, sequence = silent
    victim, _ = first_and_second(cluster, sequence)

    def look(of):
        health, ask = node.Client.health, moving.ask

        def away(client, **options):
            raise UnavailableError(NO_ROUTE)

        def late(actor, method, *arguments, **options):
            if method == "serves":
                raise DeadlineExceededError("late")
            return ask(actor, method, *arguments, **options)

        node.Client.health, moving.ask = away, late
        try:
            return of._watch.check(victim.node)
        finally:
            node.Client.health, moving.ask = health, ask

    assert asked(cluster._map, look)


def looked_at(cluster, failed, answers):
    """Names of the nodes that stay where a call to a target fails.

    answers: of each server by its target, one after another; its actor says nothing.
    """

    def look(of):
        said, ask = watching.answers, moving.ask
        left = {target: list(words) for target, words in answers.items()}

        def silent(actor, method, *arguments, **options):
            if method == "serves":
                raise DeadlineExceededError("late")
            return ask(actor, method, *arguments, **options)

        def say(target, _):
            return left[target].pop(0) if target in left else True

        watching.answers, moving.ask, watching._LATE = say, silent, 0
        try:
            before = of._state.node_names()
            of._watch.check_all(failed)
            return before & of._state.node_names()
        finally:
            watching.answers, moving.ask = said, ask

    return asked(cluster._map, look)


def test_a_server_that_is_late_while_another_one_fails_keeps_its_keys(silent):
    cluster, _ = silent
    failed, late, other = cluster.nodes()
    answers = {failed.target: [None], late.target: [None]}
    left = looked_at(cluster, failed.target, answers)
    assert left == {late.node, other.node}


def test_a_server_that_is_late_once_explains_no_failure(silent):
    cluster, _ = silent
    late, *others = cluster.nodes()
    left = looked_at(cluster, None, {late.target: [None, True]})
    assert left == {late.node, *(one.node for one in others)}


def test_a_server_that_stays_silent_explains_a_failure(silent):
    cluster, _ = silent
    gone, *others = cluster.nodes()
    left = looked_at(cluster, None, {gone.target: [None, None]})
    assert left == {one.node for one in others}


def test_a_new_range_goes_past_a_silent_server(silent, normal):
    cluster, sequence = silent
    (first,) = sequence.describe().ranges
    had = [replica.node for replica in first.replicas]
    (third,) = (one for one in cluster.nodes() if one.node not in had)
    rows = normal(HEADS, first.end, WIDTH), normal(HEADS, first.end, WIDTH)

    def wait_for_ever(of):  # for a server that no call was for
        watching._LATE = 3600
        of._replicas.client(third.node).info()  # it is connected

    asked(cluster._map, wait_for_ever)
    with stopped(third.pid):
        assert sequence.append(*rows) == KEYS + first.end
        assert third.node not in cluster._ask("targets")


@pytest.mark.long
def test_an_append_goes_on_as_soon_as_the_guide_says(ray_cluster, normal):
    cluster, sequence = start({}, 2, normal)
    row = normal(HEADS, 1, WIDTH)
    with cluster:
        victim, _ = first_and_second(cluster, sequence)
        with stopped(victim.pid):
            begin = time.monotonic()
            assert sequence.append(row, row) == KEYS + 1
            assert time.monotonic() - begin < MOST
