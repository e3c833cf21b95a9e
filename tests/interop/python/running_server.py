"""A real server on a free loopback port."""

import os
import re
import subprocess


class RunningServer:
    def __init__(self, log_path, *flags):
        self._log = open(log_path, "w+")
        arguments = ["--grpc-address", "127.0.0.1", "--grpc-port", "0"]
        arguments += ["--log-level", "info", "--log-format", "text", *flags]
        self._process = subprocess.Popen(
            [os.environ["ATTENTION_SERVER"], *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.address = self._read_address()

    def _read_address(self):
        # Its line on listening, of which it says nothing before it does.
        for line in self._process.stdout:
            self._log.write(line)
            listening = re.search(r"listening on (127\.0\.0\.1:\d+)", line)
            if listening:
                return listening.group(1)
        self._log.seek(0)
        raise RuntimeError(f"the server does not start: {self._log.read()}")

    @property
    def pid(self):
        return self._process.pid

    def is_running(self):
        return self._process.poll() is None

    def stop(self):
        """Its exit code."""
        self._process.terminate()
        rest, _ = self._process.communicate(timeout=60)
        self._log.write(rest)
        self._log.close()
        return self._process.returncode
