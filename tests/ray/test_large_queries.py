"""Queries that many ranges repeat: no request is larger than a server takes."""

import pytest
from compared import HEADS, WIDTH, assert_same
from counted import Servers

from attention_client import _channel
from attention_client.ray import asking

SIZE, RANGES, ROWS = 64, 12, 100  # ranges: of each server
QUERY = 4 * ROWS * WIDTH * 4  # bytes
LIMIT = 10 * QUERY


@pytest.fixture(params=[1, 2])
def limited(request):
    """Servers that take, and send, less than a query for each range."""
    limits = {"max_request_bytes": LIMIT, "max_response_bytes": LIMIT}
    with Servers(request.param, **limits) as made:
        yield made


@pytest.mark.parametrize("options", [{}, {"sinks": True}], ids=["plain", "sinks"])
def test_a_prefill_over_many_ranges_is_what_one_server_answers(
    limited, one_server, normal, monkeypatch, options
):
    monkeypatch.setattr(asking, "_MOST", LIMIT // 4)
    count = RANGES * len(limited.servers)
    rows = normal(HEADS, count * SIZE, WIDTH), normal(HEADS, count * SIZE, WIDTH)
    sharded = limited.sequence(HEADS, WIDTH, SIZE, ranges=count)
    sharded.append(*rows)
    query = normal(4, ROWS, WIDTH)
    given = {"causal": "bottom_right", "lse": True}
    if options:
        given["sinks"] = normal(4)
    with one_server.sequence(heads=HEADS, width=WIDTH) as whole:
        whole.append(*rows)
        expected = whole.attend(query, **given)
    limited.forget()
    assert_same(sharded.attend(query, **given), expected)
    calls = sum(client.called.count(_channel.ATTEND) for client in limited.clients)
    assert calls == count // 2


def test_a_small_query_is_one_call_to_a_server(limited, normal):
    keys = RANGES * SIZE
    sharded = limited.sequence(HEADS, WIDTH, SIZE, ranges=RANGES)
    sharded.append(normal(HEADS, keys, WIDTH), normal(HEADS, keys, WIDTH))
    limited.forget()
    sharded.attend(normal(4, 1, WIDTH))
    calls = sum(client.called.count(_channel.ATTEND) for client in limited.clients)
    assert calls == len(limited.clients)
