"""A real server on a loopback port."""

import os
import random
import re
import socket
import subprocess
import time


def free_port():
    """A port that nobody listens on, below those that the kernel gives to callers."""
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class RunningServer:
    """Its log goes to a file, so that nobody has to read it."""

    def __init__(self, log_path, *flags, port=0):
        self.log_path = log_path
        self._arguments = ["--grpc-address", "127.0.0.1", "--http-port", "0"]
        self._arguments += ["--log-level", "info", "--log-format", "text", *flags]
        self.start(port)

    def start(self, port):
        """Starts it, after stop() again."""
        with open(self.log_path, "w") as log:
            self._process = subprocess.Popen(
                [os.environ["ATTENTION_SERVER"], *self._arguments]
                + ["--grpc-port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.address = self._read_address()
        self.port = int(self.address.split(":")[1])
        http = re.search(r"https?://(127\.0\.0\.1:\d+)", self.log())
        self.http_address = http.group(1) if http else None

    def _read_address(self):
        # Its line on listening, of which it says nothing before it does.
        end = time.monotonic() + 60
        while time.monotonic() < end and self.is_running():
            listening = re.search(r"listening on (127\.0\.0\.1:\d+)\D", self.log())
            if listening:
                return listening.group(1)
            time.sleep(0.01)
        self._process.kill()
        self._process.wait()
        raise RuntimeError(f"the server does not start: {self.log()}")

    def log(self):
        with open(self.log_path) as log:
            return log.read()

    @property
    def pid(self):
        return self._process.pid

    def is_running(self):
        return self._process.poll() is None

    def kill(self):
        """Ends it in the middle of whatever it does; start() starts it again."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        """Its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
