"""Sequences behind a proxy stay at their server, also where another goes and comes."""

import time

import numpy as np
import pytest

from attention_client import Client, SequenceLostError

# By chance all are at one of two servers: once in millions of runs.
COUNT = 24
ROWS = np.ones((1, 3, 4), np.float32)

# nginx has no part in this: its configuration leaves calls on sequences anywhere.
pytestmark = pytest.mark.parametrize("proxy", ["envoy", "haproxy"], indirect=True)


@pytest.fixture
def client(proxy):
    with Client(proxy.address) as made:
        yield made


def names_at(server):
    with Client(server.address) as direct:
        return {one.name for one in direct.sequences()}


@pytest.fixture
def both_used(client, servers):
    """Waits until the proxy gives sequences to each server.

    Envoy checks its servers once for each cluster: after a restart, calls on sequences
    may find a server up to half a second after other calls do.
    """
    end = time.monotonic() + 60
    while not all(map(names_at, servers)):
        assert time.monotonic() < end, "one server has all sequences"
        client.sequence(heads=1, width=4)
    for server in servers:
        delete_all(server)


def delete_all(server):
    with Client(server.address) as direct:
        direct.delete_sequences(names_at(server))


def use(sequence):
    """Calls that fail at any server but its own."""
    length = len(sequence)
    assert sequence.append(ROWS, ROWS) == length + 3
    step = (ROWS[:, :1], ROWS[:, :1])
    answer = sequence.attend(ROWS[:, :1], append=step, causal="bottom_right").output
    np.testing.assert_allclose(answer, 1)
    assert sequence.describe().lengths == (length + 4,)


def test_calls_on_a_sequence_find_its_server(client, servers, both_used):
    made = [client.sequence(heads=1, width=4) for _ in range(COUNT)]
    for sequence in made:
        use(sequence)
    assert all(map(names_at, servers)), "one server has all sequences"
    assert client.delete_sequences(sequence.name for sequence in made) == COUNT


def test_a_fork_is_found_where_its_sequence_is(client):
    for _ in range(COUNT):
        with client.sequence(heads=1, width=4) as sequence:
            use(sequence)
            with sequence.fork() as fork, sequence.fork(name="own") as named:
                use(fork)
                use(named)
                use(client.open_sequence(fork.name))
                answer = client.attend_sequences(
                    [sequence, fork], ROWS[None].repeat(2, 0)
                )
                assert answer.output.shape == (2, 1, 3, 4)


def test_others_stay_where_they_are_while_a_server_goes_and_comes(
    client, servers, both_used
):
    made = [client.sequence(heads=1, width=4) for _ in range(COUNT)]
    lost = names_at(servers[1])
    stay = [sequence for sequence in made if sequence.name not in lost]
    assert lost and stay
    assert servers[1].stop() == 0
    for sequence in made:
        if sequence in stay:
            use(sequence)
        else:
            with pytest.raises(SequenceLostError):
                sequence.describe()
    with client.sequence(heads=1, width=4) as new:
        use(new)
    servers[1].start(servers[1].port)
    while not names_at(servers[1]):  # it is used again
        for sequence in stay:
            use(sequence)
        client.sequence(heads=1, width=4)
    for sequence in stay:
        use(sequence)
    for server in servers:
        delete_all(server)
