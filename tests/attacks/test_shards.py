"""Requests to ShardService that ask for more than their bytes."""

from attacked_server import PATIENCE
from grpc import StatusCode
from messages import SMALL, field
from sequence_calls import code_of

MIB = 1 << 20
ATTEND_SHARDS = "/attention.v1.ShardService/Attend"


def test_what_is_common_comes_in_few_pieces(start):
    # Each of 256 parts would have each of the pieces.
    server = start()
    before = server.most_memory()
    message = field(1, field(1, b"")) * 100_000 + field(2, field(2, b"") * 256)
    with server.channel() as channel:
        attend = channel.unary_unary(ATTEND_SHARDS)
        code, said = code_of(attend, message, timeout=PATIENCE)
        assert code == StatusCode.INVALID_ARGUMENT
        assert said == "common: came more than 64 times (expected once)"
    assert server.call(SMALL) == StatusCode.OK
    assert server.most_memory() - before < 100 * MIB
