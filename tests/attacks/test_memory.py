"""Messages that would take more memory than there is."""

import gzip
import threading
import zlib

import h2.events
import pytest
from attacked_server import ATTEND, PATIENCE
from grpc import RpcError, StatusCode
from inference import grpc_service_pb2
from messages import SMALL, attend_request
from raw_connection import MESSAGE_HEAD, RawConnection

MIB = 1 << 20


def in_threads(count, function):
    threads = [threading.Thread(target=function) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_message_of_4_gib_against_a_limit_of_1_mib(start):
    server = start("--max-request-bytes", "1MiB", "--memory-limit", "256MiB")
    sent, ended = 0, False
    with RawConnection(server) as attacker:
        attacker.settle()
        stream = attacker.begin()
        attacker.http.send_data(stream, MESSAGE_HEAD.pack(0, (1 << 32) - 1))
        attacker.flush()
        while sent < 512 * MIB and not ended:
            room = min(attacker.http.local_flow_control_window(stream), 16384)
            if room > 0:
                attacker.http.send_data(stream, bytes(room))
                sent += room
                try:
                    attacker.flush()
                except ConnectionError:
                    ended = True
                continue
            events = attacker.receive()
            ended = events is None or any(
                isinstance(e, (h2.events.StreamReset, h2.events.StreamEnded)) for e in events
            )
    assert server.call(SMALL) == StatusCode.OK
    assert ended, f"{sent} bytes were taken"
    assert server.most_memory() < 256 * MIB


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_bomb_is_refused(start, encoding):
    zeros = bytes(16 * MIB)
    bomb = gzip.compress(zeros) if encoding == "gzip" else zlib.compress(zeros)
    server = start()
    before = server.most_memory()
    with RawConnection(server) as attacker:
        attacker.settle()
        for _ in range(20):
            stream = attacker.send(
                bomb[:16000], compressed=1, headers=[("grpc-encoding", encoding)]
            )
            attacker.flush()
            code = None
            while code is None:
                for event in attacker.receive():
                    if isinstance(
                        event, (h2.events.TrailersReceived, h2.events.ResponseReceived)
                    ) and event.stream_id == stream:
                        code = dict(event.headers).get("grpc-status", code)
            assert code == "12", "UNIMPLEMENTED"
    assert server.most_memory() - before < 16 * MIB
    assert server.call(SMALL) == StatusCode.OK


def test_16_requests_of_64_mib_in_512_mib(start):
    server = start("--memory-limit", "512MiB", "--max-request-bytes", "128MiB")
    request = attend_request(8, 64 * MIB // 2 // 4 // 256, 256)
    codes = []

    def call():
        codes.append(server.call(request))

    in_threads(16, call)
    # CANCELLED: gRPC 1.51 has reset it for want of memory.
    assert set(codes) <= {
        StatusCode.OK,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.UNAVAILABLE,
        StatusCode.CANCELLED,
    }
    assert server.is_running(), server.log()
    assert server.call(SMALL) == StatusCode.OK
    assert server.most_memory() < 512 * MIB


def test_8_requests_of_64_mib_in_400_mib_of_addresses(start):
    # gRPC 1.51 does not look whether it got what it reads into; the default limit leaves room.
    server = start(address_space=400 * MIB)
    request = attend_request(8, 64 * MIB // 2 // 4 // 256, 256)
    for _ in range(3):
        in_threads(8, lambda: server.call(request))
        assert server.is_running(), server.log()
    assert server.call(SMALL) == StatusCode.OK


def test_pressure_while_many_requests_are_gathered(start):
    # Half of the limit is gRPC's: less than the messages that are on their way.
    server = start("--memory-limit", "64MiB")
    request = attend_request(8, 16 * MIB // 2 // 4 // 256, 256)
    codes = []

    def call():
        with server.channel() as channel:
            attend = channel.unary_unary(ATTEND)
            for _ in range(8):
                try:
                    attend(request, timeout=60)
                    codes.append(StatusCode.OK)
                except RpcError as error:
                    codes.append(error.code())

    in_threads(16, call)
    assert len(codes) == 16 * 8
    assert server.is_running(), server.log()
    assert server.call(SMALL) == StatusCode.OK


def test_large_messages_of_methods_without_tensors_are_not_parsed(start):
    # Unknown fields, each of which takes 16 bytes where it is parsed.
    request = b"\x08\x00" * (8 * MIB)
    service = grpc_service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    names = set(service.methods_by_name) - {"ModelInfer", "ModelStreamInfer"}
    methods = [f"{service.full_name}/{name}" for name in names]
    methods.append("attention.v1.AttentionService/GetServerInfo")
    assert len(methods) == 19
    server = start()
    before = server.most_memory()
    with server.channel() as channel:
        for method in methods:
            call = channel.unary_unary(f"/{method}")
            with pytest.raises(RpcError) as refused:
                call(request, timeout=PATIENCE)
            assert refused.value.code() == StatusCode.RESOURCE_EXHAUSTED, method
            assert "takes 16777216 bytes" in refused.value.details()
    assert server.call(SMALL) == StatusCode.OK
    assert server.most_memory() - before < 100 * MIB
