"""The programs that a measurement runs, each ended with it."""

import json
import re
import subprocess
from pathlib import Path

_SERVER_FLAGS = ["--grpc-address", "127.0.0.1", "--grpc-port", "0", "--http-port", "0"]
_SERVER_FLAGS += ["--log-format", "text"]


class Server:
    """attention-server on a free port of this machine and on a socket."""

    def __init__(self, binaries: Path, folder: Path, flags: list[str]):
        self.unix = f"unix:{folder}/server.sock"
        self._process = subprocess.Popen(
            [
                str(binaries / "attention-server"),
                *_SERVER_FLAGS,
                *["--grpc-unix-socket", f"{folder}/server.sock"],
                *flags,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            found = re.search(r"listening on ([^ ,]+)", line)
            if found:
                self.tcp = found[1]
                self.line = line.strip()
                return
        raise RuntimeError("the server does not start: " + "".join(lines))

    def peak_bytes(self) -> int:
        """The most physical memory that the process has held (proc(5), VmHWM)."""
        return self._bytes("VmHWM")

    def resident_bytes(self) -> int:
        """The physical memory that it holds now (VmRSS)."""
        return self._bytes("VmRSS")

    def _bytes(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()
        self._process.stderr.close()


class Floors:
    """The floor server; `addresses` says where it answers what."""

    def __init__(self, binaries: Path, folder: Path):
        self._process = subprocess.Popen(
            [str(binaries / "attention-load"), "floor-server", "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addresses = json.loads(self._process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()  # which ends it
        self._process.wait()
        self._process.stdout.close()


def load(binaries: Path, arguments: list[str], seconds: float) -> dict:
    """One run of attention-load; what it prints (benchmarks/load/samples.h)."""
    command = [
        str(binaries / "attention-load"),
        *arguments,
        *["--seconds", str(seconds), "--json"],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
