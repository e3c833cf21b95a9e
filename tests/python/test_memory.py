"""What large messages cost in memory."""

import subprocess
import sys

# Prints how many pages a call has to fetch from the system.
CALLS = """
import resource
import sys

import numpy as np

from attention_client import Client

x = np.ones({shape}, np.float32)
with Client(sys.argv[1], shared_memory=False) as client:
    for calls in (5, 20):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(calls):
            client.attend(x, x, x, weights={weights})
        after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print((after - before) // calls)
"""


def fetched_pages(server, shape, weights):
    program = CALLS.format(shape=shape, weights=weights)
    ran = subprocess.run(
        [sys.executable, "-c", program, server.target],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return int(ran.stdout)


def test_the_memory_of_large_messages_is_used_again(server):
    # 12 MiB there and 4 MiB back: 4096 pages of the messages alone.
    assert fetched_pages(server, (8, 16, 128, 64), weights=False) < 1000


def test_the_memory_of_large_replies_is_used_again(server):
    # 96 KiB there, 8 MiB back.
    assert fetched_pages(server, (1, 2, 1024, 4), weights=True) < 1000
