"""The server's binary on a free loopback port, and what it takes of the machine."""

import os
import re
import resource
import socket
import subprocess

import grpc
from polling import wait_until

ATTEND = "/attention.v1.AttentionService/Attend"
ATTEND_STREAM = "/attention.v1.AttentionService/AttendStream"
PATIENCE = 60  # seconds: what ends earlier where all is well


def connect_to_grpc(server):
    return socket.create_connection((server.host, server.port), PATIENCE)


class AttackedServer:
    def __init__(self, folder, *flags, descriptors=None, address_space=None):
        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            if address_space:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

        self._log_path = folder / "log"
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                [os.environ["ATTENTION_SERVER"], "--grpc-port", "0", "--http-port", "0", *flags],
                stdout=log,
                stderr=log,
                preexec_fn=limit,
            )
        wait_until(lambda: "listening on" in self.log() or not self.is_running(), "a start")
        listening = re.search(r"listening on (127\.0\.0\.1):(\d+)", self.log())
        assert listening, self.log()
        self.host, self.port = listening.group(1), int(listening.group(2))
        self.address = f"{self.host}:{self.port}"
        self.http_port = int(re.search(r"https?://127\.0\.0\.1:(\d+)", self.log()).group(1))

    def log(self):
        """What it has written so far: it writes behind its answers, by a thread of its own."""
        return self._log_path.read_text()

    def wait_for_line(self, text):
        wait_until(lambda: text in self.log(), f"'{text}' in its log")

    def is_running(self):
        return self._process.poll() is None

    def _status(self, name):
        with open(f"/proc/{self._process.pid}/status") as status:
            return int(re.search(rf"{name}:\s+(\d+) kB", status.read()).group(1)) << 10

    def memory(self):
        """Bytes that it holds."""
        return self._status("VmRSS")

    def most_memory(self):
        """Bytes that it has held since it started."""
        return self._status("VmHWM")

    def threads(self):
        return len(os.listdir(f"/proc/{self._process.pid}/task"))

    def open_files(self):
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def channel(self, *options):
        """A connection of its own."""
        return grpc.insecure_channel(
            self.address,
            [
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.enable_retries", 0),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", -1),
                *options,
            ],
        )

    def call(self, request, timeout=PATIENCE):
        """The code that a call of its own connection ends with."""
        with self.channel() as channel:
            try:
                channel.unary_unary(ATTEND)(request, timeout=timeout)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    def send(self, signal):
        self._process.send_signal(signal)

    def terminate(self):
        self._process.terminate()

    def wait(self):
        return self._process.wait(PATIENCE)

    def stop(self):
        """Its exit code."""
        self.terminate()
        try:
            return self.wait()
        finally:
            self._process.kill()
