"""Many sequences at once: what is counted is what the process has, and nothing is lost."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from attention.v1 import attention_pb2 as pb
from sequences import Sequences, array_of, form

MIB = 1 << 20
CLIENTS = 16
SEQUENCES = 1000
HEADS, WIDTH = 2, 128
STEPS = 4
# Of each sequence, so that all take 500 MiB.
KEYS = {pb.DATA_TYPE_FP32: 256, pb.DATA_TYPE_INT8: 1024}


def rows_of(random, datatype):
    """What is stored, key and value and of INT8 their scales, and what these mean."""
    shape = (2, HEADS, KEYS[datatype], WIDTH)
    if datatype == pb.DATA_TYPE_FP32:
        stored = random.standard_normal(shape, dtype=np.float32)
        return list(stored), stored.astype(float)
    elements = random.integers(-127, 128, shape, dtype=np.int8)
    scales = random.uniform(0.005, 0.01, shape[:3]).astype(np.float32)
    return [*elements, *scales], elements * scales[..., None].astype(float)


def expected(query, key, value):
    """Of one query for each head, in FP64."""
    scores = np.einsum("hd,hkd->hk", query, key) / np.sqrt(WIDTH)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("hk,hkd->hd", weights, value)


def work(server, names, datatype):
    """Fills sequences and attends to each with every step; how many answers were right."""
    right = 0
    with server.channel() as channel:
        client = Sequences(channel)
        client.create(*names, form=form(heads=HEADS, width=WIDTH, datatype=datatype))
        for name in names:
            random = np.random.default_rng(list(name.encode()))
            stored, (key, value) = rows_of(random, datatype)
            keys = KEYS[datatype]
            client.append(name, *(part[:, : keys - STEPS] for part in stored))
            for end in range(keys - STEPS + 1, keys + 1):
                query = random.standard_normal((HEADS, WIDTH), dtype=np.float32)
                step = [part[None, :, end - 1 : end] for part in stored]
                reply = client.attend([name], query[None, :, None], step)
                np.testing.assert_allclose(
                    array_of(reply.output)[0, :, 0],
                    expected(query, key[:, :end], value[:, :end]),
                    rtol=1e-5,
                    atol=1e-5,
                )
                right += 1
    return right


def held_bytes(sequences):
    info = sequences.attention.GetServerInfo(pb.GetServerInfoRequest())
    return info.sequence_store.held_bytes


@pytest.mark.parametrize("datatype", KEYS)
def test_what_is_counted_of_a_thousand_sequences_is_what_the_process_has(
    start, datatype
):
    # With less than 4 GiB what messages took goes back to the system at once.
    server = start("--memory-limit", "2GiB", "--resident-memory-limit", "1GiB")
    with ThreadPoolExecutor(CLIENTS) as pool, server.channel() as channel:

        def all_work(kind, count):
            shares = [
                [f"{kind}-{n}" for n in range(first, count, CLIENTS)]
                for first in range(CLIENTS)
            ]
            return sum(pool.map(lambda names: work(server, names, datatype), shares))

        sequences = Sequences(channel)
        # Buffers, threads and their arenas are there from then on.
        assert all_work("first", 4 * CLIENTS) == 4 * CLIENTS * STEPS
        held, measured = held_bytes(sequences), server.memory()
        before = measured
        assert all_work("then", SEQUENCES) == SEQUENCES * STEPS
        held, measured = held_bytes(sequences) - held, server.memory() - measured
        assert held > 500 * MIB
        assert abs(measured - held) < 0.05 * held, (measured / MIB, held / MIB)
        names = sequences.all_names()
        assert len(names) == SEQUENCES + 4 * CLIENTS
        for name in names:
            assert list(sequences.describe(name).lengths) == [KEYS[datatype]]
        # Of what is deleted some MiB are kept for the next pages.
        for first in range(0, len(names), 256):
            sequences.delete(*names[first : first + 256])
        assert held_bytes(sequences) == 0
        assert server.memory() < before + 32 * MIB


def test_what_is_counted_of_forks_is_what_the_process_has(start):
    server = start("--memory-limit", "2GiB", "--resident-memory-limit", "1GiB")
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("long", form=form(width=1))
        keys = np.zeros((1, 64 * 50_000, 1), np.float32)
        sequences.append("long", keys, keys)
        held, measured = held_bytes(sequences), server.memory()
        # Pages are shared; each has a table of them, of 400 KB.
        for n in range(400):
            sequences.fork("long", new_name=f"fork-{n}")
        held, measured = held_bytes(sequences) - held, server.memory() - measured
        assert held > 400 * 50_000 * 8
        assert abs(measured - held) < 0.1 * held, (measured / MIB, held / MIB)
