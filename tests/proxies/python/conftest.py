"""Two servers, and each proxy before them."""

import resource
import subprocess

import pytest
from running_proxy import FILES, NETWORK, RunningProxy
from running_server import RunningServer, free_port

# Time for proxies to see that a server drains, while it still serves.
DRAIN_DELAY = ["--drain-delay", "2s"]


@pytest.fixture(scope="session", autouse=True)
def descriptors():
    """Enough for all of an attack's connections, here and in a proxy."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 4096, f"a limit of {hard} open files is too low for these tests"
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("servers")
    running = [
        RunningServer(folder / name, *DRAIN_DELAY, port=free_port()) for name in "ab"
    ]
    yield running
    assert [server.stop() for server in running] == [0, 0]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """One self-signed certificate, which stands for server, caller and authority."""
    folder = tmp_path_factory.mktemp("certificates")
    key, certificate = folder / "tls.key", folder / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
        + ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
        + ["-subj", "/CN=localhost"]
        + ["-addext", f"subjectAltName=IP:127.0.0.1,IP:{NETWORK}"]
        + ["-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    (folder / "callers.crt").write_bytes(certificate.read_bytes())
    pem = certificate.read_bytes() + key.read_bytes()
    (folder / "tls.pem").write_bytes(pem)
    return folder


@pytest.fixture(scope="session", params=sorted(FILES))
def proxy(request, tmp_path_factory, servers, certificates):
    folder = tmp_path_factory.mktemp(request.param)
    ports = [server.port for server in servers]
    running = RunningProxy(request.param, folder, ports, certificates)
    yield running
    assert running.is_running(), running.log()
    running.stop()
