"""What callers send along reaches the servers, by way of the map, too."""

import contextlib

import pytest
from at_nodes import asked
from waiting import wait_for_nodes

from attention_client import InvalidArgumentError

HEADS, WIDTH = 2, 16
SENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@contextlib.contextmanager
def heard(cluster):
    """Gives what says how many calls of servers the map has made with SENT."""

    def listen(of):
        from attention_client._channel import Caller

        of._heard, of._with = [], Caller._metadata_with

        def with_them(client, metadata):
            sent = of._with(client, metadata)
            of._heard.append(dict(sent))
            return sent

        Caller._metadata_with = with_them

    def stop(of):
        from attention_client._channel import Caller

        Caller._metadata_with = of._with

    def count(of):
        found, of._heard = of._heard, []
        return sum(SENT.items() <= sent.items() for sent in found)

    asked(cluster._map, listen)
    try:
        yield lambda: asked(cluster._map, count)
    finally:
        asked(cluster._map, stop)


def test_the_maps_calls_have_a_callers_metadata(cluster, normal, tmp_path):
    wait_for_nodes(cluster, 4)
    rows = normal(HEADS, 100, WIDTH), normal(HEADS, 100, WIDTH)
    with (
        cluster.sequence(heads=HEADS, width=WIDTH, range_keys=64) as sequence,
        heard(cluster) as count,
    ):
        sequence.append(*rows)
        assert count() == 0
        fork = sequence.fork(metadata=SENT)
        assert count() > 0
        fork.describe(metadata=SENT)
        assert count() > 0
        fork.export(tmp_path, metadata=SENT)
        assert count() > 0
        fork.truncate(10, metadata=SENT)
        assert count() > 0
        fork.delete(metadata=SENT)
        assert count() > 0
        sequence.describe()
        assert count() == 0


def test_metadata_that_cannot_be_sent_is_refused_before_anything_is_done(cluster):
    wait_for_nodes(cluster, 4)
    with cluster.sequence(heads=HEADS, width=WIDTH) as sequence:
        with pytest.raises(InvalidArgumentError, match="metadata"):
            sequence.delete(metadata={"Key": "of upper case"})
        assert sequence.name in cluster.sequences()
