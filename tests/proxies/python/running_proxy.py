"""A proxy with a configuration of deploy/proxy, its ports and paths filled in."""

import re
import socket
import subprocess
import time
from pathlib import Path

from running_server import free_port

CONFIGURATIONS = Path(__file__).parents[3] / "deploy" / "proxy"
# An address of this machine, but not 127.0.0.1: it stands for a network.
NETWORK = "127.0.0.2"
FILES = {"envoy": "envoy.yaml", "haproxy": "haproxy.cfg", "nginx": "nginx.conf"}


def command(name, folder, config):
    if name == "envoy":
        return ["envoy", "-c", config, "--disable-hot-restart", "--concurrency", "2"]
    if name == "haproxy":
        return ["haproxy", "-db", "-f", config]
    return ["nginx", "-p", folder, "-e", "stderr", "-g", "daemon off;", "-c", config]


class RunningProxy:
    """Before the servers of two ports; `certificates` adds its encrypted port."""

    def __init__(self, name, folder, servers, certificates=None):
        self.name = name
        self.port, self.tls_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        text = (CONFIGURATIONS / FILES[name]).read_text()
        ports = {"8000": self.port, "8001": servers[0], "8002": servers[1]}
        if certificates:
            text = text.replace("#tls", "")
            text = text.replace("/etc/attention", str(certificates))
            ports["8443"] = self.tls_port
        for number, port in ports.items():
            # Where a port stands, not where a comment speaks of it.
            text, found = re.subn(
                rf"^([^#\n]*\b){number}\b", rf"\g<1>{port}", text, flags=re.M
            )
            # HAProxy names the servers in each backend.
            most = 2 if name == "haproxy" and number in ("8001", "8002") else 1
            assert found == most, f"{FILES[name]} has port {number} {found} times"
        config = folder / FILES[name]
        config.write_text(text)
        self._log_path = folder / "log"
        with open(self._log_path, "w") as log:
            self._process = subprocess.Popen(
                command(name, folder, config),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait_until_listening()

    def _wait_until_listening(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.02)
        self._process.kill()
        self._process.wait()
        raise RuntimeError(f"the proxy does not start: {self.log()}")

    def log(self):
        return self._log_path.read_text()

    def is_running(self):
        return self._process.poll() is None

    def stop(self):
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
