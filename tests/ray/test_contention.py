"""Programs that append at one position at once, or die before every replica has it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from waiting import wait_until

from attention_client import AbortedError, Client, _channel
from attention_client.ray import AttentionCluster, moving
from attention_client.ray.attempts import NewKeys, StaleError
from attention_client.ray.ranges import Range

HEADS, WIDTH, KEYS = 2, 16, 100
FORM = {"heads": HEADS, "width": WIDTH}


class Slow(Client):
    """Its appends wait until they are let go, and fail then where it is to die."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.is_reached, self.is_free = threading.Event(), threading.Event()
        self.dies = False

    def _call(self, method, *arguments):
        if method == _channel.APPEND:
            self.is_reached.set()
            assert self.is_free.wait(60)
            if self.dies:
                raise RuntimeError("the program has died")
        return super()._call(method, *arguments)


class Overtaken(Client):
    """Others do something once it has appended."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.then = None

    def _call(self, method, *arguments):
        answer = super()._call(method, *arguments)
        if method == _channel.APPEND and self.then is not None:
            then, self.then = self.then, None
            then()
        return answer


class Held(Client):
    """Its answers to questions come once they are let go."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.is_reached, self.is_free = threading.Event(), threading.Event()

    def _call(self, method, *arguments):
        answer = super()._call(method, *arguments)
        if method == _channel.ATTEND:
            self.is_reached.set()
            assert self.is_free.wait(60)
        return answer


@pytest.fixture(params=[2, 3])
def sequence(cluster, normal, request):
    with cluster.sequence(**FORM, replicas=request.param) as made:
        made.append(normal(HEADS, KEYS, WIDTH), normal(HEADS, KEYS, WIDTH))
        yield made


@pytest.fixture
def other(sequence):
    """The sequence in another program, whose second replica hears of it late."""
    with AttentionCluster.connect() as connected:
        opened = connected.open_sequence(sequence.name)
        second = opened._map.ranges[-1].replicas[1].node
        target = connected._client(second).target
        with Slow(target, **moving.plain({})) as slow:
            connected._clients[second] = slow
            opened.slow = slow
            yield opened


def held(cluster, sequence):
    """What each replica answers, byte for byte, and how many keys it has."""
    (part,) = sequence.describe().ranges
    query = np.ones((HEADS, 1, WIDTH), np.float32)
    found = []
    for replica in part.replicas:
        one = cluster._client(replica.node).open_sequence(replica.name)
        found.append((one.attend(query).output.tobytes(), len(one)))
    return found


def first_has(cluster, sequence, count):
    (part,) = sequence._map.ranges
    client = cluster._client(part.replicas[0].node)
    return len(client.open_sequence(part.replicas[0].name)) == count


def rows(normal, count=1):
    return normal(HEADS, count, WIDTH), normal(HEADS, count, WIDTH)


@pytest.mark.parametrize("is_step", [False, True])
def test_the_first_replica_decides_between_two_programs(
    cluster, sequence, other, normal, is_step
):
    theirs, ours = rows(normal), rows(normal)
    query = normal(HEADS, 1, WIDTH)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(other.append, *theirs)
        assert other.slow.is_reached.wait(60)
        wait_until(lambda: first_has(cluster, sequence, KEYS + 1))
        try:
            with pytest.raises(AbortedError):
                if is_step:
                    sequence.attend(query, append=ours)
                else:
                    sequence.append(*ours)
        finally:
            other.slow.is_free.set()
        assert late.result() == KEYS + 1
    sequence.describe()
    assert len(sequence) == KEYS + 1
    assert sequence.append(*ours) == KEYS + 2
    assert len(set(held(cluster, sequence))) == 1


@pytest.mark.parametrize("is_step", [False, True])
def test_an_append_that_is_beaten_half_way_says_what_is_in(cluster, normal, is_step):
    with (
        cluster.sequence(**FORM, range_keys=64) as sequence,
        AttentionCluster.connect() as connected,
    ):
        sequence.append(*rows(normal, 60))
        other = connected.open_sequence(sequence.name)
        (first,) = other._map.ranges[0].replicas
        target = connected._client(first.node).target

        def overtake():
            sequence.describe()
            sequence.append(*rows(normal, 3))

        theirs = rows(normal, 10)
        with Overtaken(target, **moving.plain({})) as client:
            connected._clients[first.node] = client
            client.then = overtake
            with pytest.raises(
                AbortedError, match=r"^position: 64 .* 4 of 10"
            ) as beaten:
                if is_step:
                    other.attend(normal(HEADS, 10, WIDTH), append=theirs)
                else:
                    other.append(*theirs)
            other.describe()
            left = beaten.value.appended
            assert other.append(*(half[:, left:] for half in theirs)) == 60 + 3 + 10


def test_an_append_that_is_beaten_keeps_who_said_so_and_when_to_try_again():
    error = AbortedError("position: 0 has other keys", retry_after=2)
    error.server = "127.0.0.1:1"
    new = NewKeys({"key": np.zeros((1, HEADS, 1, WIDTH))}, 0)
    with pytest.raises(StaleError) as stale, new.going_to(Range(0, 64, ())):
        raise StaleError(error, [], in_tree=False)
    told = stale.value.error
    assert (told.server, told.retry_after) == ("127.0.0.1:1", 2)


def test_what_a_program_has_left_half_done_is_finished(
    cluster, sequence, other, normal
):
    other.slow.dies = True
    other.slow.is_free.set()
    theirs, ours = rows(normal, 3), rows(normal)
    with pytest.raises(RuntimeError):
        other.append(*theirs)
    # Nobody was told that they are there.
    sequence.describe()
    assert len(sequence) == KEYS
    with pytest.raises(AbortedError):
        sequence.append(*ours)
    # Whoever ran into it has had it finished.
    sequence.describe()
    assert len(sequence) == KEYS + 3
    assert sequence.append(*theirs, position=KEYS) == KEYS + 3
    assert sequence.append(*ours) == KEYS + 4
    assert len(set(held(cluster, sequence))) == 1


def test_the_program_itself_may_go_on(cluster, sequence, other, normal):
    other.slow.dies = True
    other.slow.is_free.set()
    with pytest.raises(RuntimeError):
        other.append(*rows(normal))
    other.slow.dies = False
    # Behind keys that the second replica does not have.
    assert other.append(*rows(normal), position=KEYS + 1) == KEYS + 2
    assert len(set(held(cluster, sequence))) == 1


def test_a_fork_amid_an_append_has_what_all_replicas_have(
    cluster, sequence, other, normal
):
    other.slow.dies = True
    other.slow.is_free.set()
    with pytest.raises(RuntimeError):
        other.append(*rows(normal))
    with sequence.fork() as fork:
        assert fork.append(*rows(normal)) == KEYS + 1
        assert len(set(held(cluster, fork))) == 1


def test_an_append_that_comes_after_a_truncate_goes_nowhere(
    cluster, sequence, other, normal
):
    theirs, ours = rows(normal), rows(normal)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(other.append, *theirs)
        assert other.slow.is_reached.wait(60)
        sequence.truncate(KEYS)
        assert sequence.append(*ours) == KEYS + 1
        other.slow.is_free.set()
        with pytest.raises(AbortedError):
            late.result()
    assert len(set(held(cluster, sequence))) == 1


def test_a_fork_amid_appends_to_several_layers_has_like_replicas(cluster, normal):
    with cluster.sequence(**FORM, layers=2, replicas=2) as sequence:
        for layer in range(2):
            sequence.append(*rows(normal, KEYS), layer)
        (part,) = sequence._map.ranges
        # The first layer of a step has reached both, the second one the first alone.
        sequence.append(*rows(normal), 0)
        client = cluster._client(part.replicas[0].node)
        client.open_sequence(part.replicas[0].name).append(*rows(normal), 1)
        with sequence.fork() as fork:
            assert fork.lengths == (KEYS + 1, KEYS)
            assert fork.append(*rows(normal), 1) == KEYS + 1
            assert len(set(held(cluster, fork))) == 1


def test_a_read_under_way_leaves_a_truncated_length(cluster, normal):
    with (
        cluster.sequence(**FORM) as made,
        AttentionCluster.connect() as connected,
        ThreadPoolExecutor(1) as threads,
    ):
        made.append(*rows(normal, KEYS))
        opened = connected.open_sequence(made.name)
        (replica,) = opened._map.ranges[0].replicas
        target = connected._client(replica.node).target
        with Held(target, **moving.plain({})) as held:
            connected._clients[replica.node] = held
            reading = threads.submit(opened.attend, normal(HEADS, 1, WIDTH))
            try:
                assert held.is_reached.wait(60)
                opened.truncate(10)
            finally:
                held.is_free.set()
            reading.result()
            assert len(opened) == 10
