"""Signals, a caller that is taken away, and what the server reads from its disk."""

import fcntl
import hashlib
import json
import os
import pty
import queue
import re
import signal
import struct
import subprocess
import termios
import time
import urllib.request

import grpc
import pytest
from attacked_server import ATTEND, ATTEND_STREAM
from certificates import make_certificates, server_flags
from grpc import RpcError, StatusCode
from messages import SMALL, attend_request
from polling import wait_until
from raw_connection import RawConnection

MODEL_STREAM_INFER = "/inference.GRPCInferenceService/ModelStreamInfer"
TOKEN = (("authorization", "Bearer secret"),)


def in_flight(server):
    """Requests that are not answered yet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics") as page:
        return int(re.search(r"^attention_requests_in_flight (\d+)", page.read().decode(), re.M)[1])


def callers(token):
    return callers_by("tokens_sha256", hashlib.sha256(token.encode()).hexdigest())


def callers_by(key, value):
    return json.dumps({"callers": [{"name": "ranker", key: [value]}]})


class OpenStream:
    """A stream on which requests are sent one by one."""

    def __init__(self, channel, method, metadata=TOKEN):
        self._requests = queue.Queue()
        self._replies = channel.stream_stream(method)(
            iter(self._requests.get, None), metadata=metadata, timeout=60
        )

    def send(self, request):
        self._requests.put(request)

    def ask(self, request):
        self.send(request)
        return next(self._replies)

    def code(self):
        """That it ends with."""
        try:
            for _ in self._replies:
                pass
        except RpcError as error:
            return error.code()
        finally:
            self._requests.put(None)
        return StatusCode.OK


@pytest.mark.parametrize("method", [ATTEND_STREAM, MODEL_STREAM_INFER])
def test_an_open_stream_ends_with_its_callers_token(start, tmp_path, method):
    file = tmp_path / "callers.json"
    file.write_text(callers("secret"))
    server = start("--callers-file", str(file))
    with server.channel() as channel:
        stream = OpenStream(channel, method)
        # Of the other protocol it is answered as well, with an error.
        stream.ask(SMALL)
        file.write_text(callers("another"))
        begin = time.monotonic()
        assert stream.code() == StatusCode.UNAUTHENTICATED
        assert time.monotonic() - begin < 10, server.log()


def test_an_open_stream_ends_with_its_callers_certificate(start, tmp_path):
    file = tmp_path / "callers.json"
    file.write_text(callers_by("certificates", "127.0.0.1"))
    folder = make_certificates(tmp_path)
    server = start("--callers-file", str(file), *map(str, server_flags(folder)))
    credentials = grpc.ssl_channel_credentials(
        *((folder / name).read_bytes() for name in ("ca.pem", "caller.key", "caller.pem"))
    )
    with grpc.secure_channel(server.address, credentials) as channel:
        stream = OpenStream(channel, ATTEND_STREAM, metadata=())
        stream.ask(SMALL)
        file.write_text(callers_by("certificates", "127.0.0.2"))
        server.send(signal.SIGHUP)
        assert stream.code() == StatusCode.UNAUTHENTICATED


def test_a_stream_whose_replies_nobody_reads_ends_with_its_token_too(start, tmp_path):
    file = tmp_path / "callers.json"
    file.write_text(callers("secret"))
    server = start("--callers-file", str(file))
    with server.channel() as channel:
        stream = OpenStream(channel, ATTEND_STREAM)
        stream.ask(SMALL)
        for _ in range(1000):
            stream.send(SMALL)
        file.write_text(callers("another"))
        server.send(signal.SIGHUP)
        assert stream.code() == StatusCode.UNAUTHENTICATED


def test_a_stream_whose_reply_is_not_taken_ends_with_its_token(start, tmp_path):
    # Well before the reply's own time is over.
    file = tmp_path / "callers.json"
    file.write_text(callers("secret"))
    server = start("--callers-file", str(file), "--reply-timeout", "10min")
    with RawConnection(server, window=0) as caller:
        caller.settle()
        stream = caller.begin(ATTEND_STREAM, headers=TOKEN)
        # 256 KiB: more than gRPC keeps for who reads later.
        caller.send_on(stream, attend_request(1, 1, 1, 65536))
        wait_until(lambda: in_flight(server) == 1, "a reply that is not taken")
        file.write_text(callers("another"))
        server.send(signal.SIGHUP)
        wait_until(lambda: in_flight(server) == 0, "the call is given up")


def test_sighup_reads_callers_again(start, tmp_path):
    file = tmp_path / "callers.json"
    file.write_text(callers("secret"))
    server = start("--callers-file", str(file))
    for _ in range(3):
        before = server.log().count("callers are known now")
        server.send(signal.SIGHUP)
        wait_until(
            lambda: server.log().count("callers are known now") > before, "the file is read"
        )
    with server.channel() as channel:
        assert channel.unary_unary(ATTEND)(SMALL, metadata=TOKEN, timeout=60)


def test_sighup_reads_models_again(start, tmp_path):
    models = tmp_path / "models"
    (models / "old").mkdir(parents=True)
    (models / "old/config.json").write_text('{"scoring": "scaled_dot_product"}')
    server = start("--model-repository", str(models))
    (models / "old").rename(models / "new")
    server.send(signal.SIGHUP)
    server.wait_for_line("model 'old' is unloaded")
    server.wait_for_line("model 'new' is ready")


def test_signals_of_other_servers_log_files_are_ignored(start):
    server = start()
    for ignored in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGHUP):
        server.send(ignored)
        assert server.call(SMALL) == StatusCode.OK


def test_sigquit_drains(start):
    server = start()
    server.send(signal.SIGQUIT)
    assert server.wait() == 0
    assert "SIGQUIT: draining" in server.log()
    assert "every request was answered" in server.log()


def test_a_terminal_that_is_closed_drains(tmp_path):
    terminal, of_server = pty.openpty()
    log = tmp_path / "log"
    with open(log, "wb") as written:
        server = subprocess.Popen(
            [os.environ["ATTENTION_SERVER"], "--grpc-port", "0", "--http-port", "0"],
            stdin=of_server,
            stdout=written,
            stderr=written,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    os.close(of_server)
    try:
        wait_until(lambda: "listening on" in log.read_text(), "a start")
        os.close(terminal)
        assert server.wait(60) == 0
    finally:
        server.kill()
    assert "SIGHUP: draining" in log.read_text()


def test_abort_is_told_as_what_it_is(start):
    server = start(expect=-signal.SIGABRT)
    server.send(signal.SIGABRT)
    assert server.wait() == -signal.SIGABRT
    assert "attention-server: aborted: a fault in the program" in server.log()
    assert "memory" not in server.log().split("aborted: ")[1]


def matrix(rows, columns, begin=0):
    end = begin + 4 * rows * columns
    return {"dtype": "F32", "shape": [rows, columns], "data_offsets": [begin, end]}


LARGE = matrix(1 << 14, 1 << 15)  # 2 GiB


@pytest.mark.parametrize(
    "header, message",
    [
        ({"m": matrix(4, 4)}, "2147483584 bytes at the end belong to no tensor"),
        ({"m": LARGE}, "tensor 'm': has 536870912 elements"),
        # What the set does not use is not read.
        ({"m": matrix(4, 4), "another": matrix(1, (1 << 29) - 16, 64)}, "model 'large' is ready"),
    ],
    ids=["a lie", "too large", "beside another"],
)
def test_parameters_of_gigabytes_take_no_memory(start, tmp_path, header, message):
    model = tmp_path / "models/large"
    model.mkdir(parents=True)
    parameters = {"m": {"tensor": "m", "layout": "input_by_output"}}
    (model / "config.json").write_text(
        json.dumps({"scoring": "bilinear", "parameters": parameters})
    )
    text = json.dumps(header).encode()
    with open(model / "parameters.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + (2 << 30))  # of which the disk has nothing
    server = start("--model-repository", str(tmp_path / "models"), "--memory-limit", "512MiB")
    server.wait_for_line(message)
    assert server.most_memory() < 512 << 20
    assert server.call(SMALL) == StatusCode.OK
