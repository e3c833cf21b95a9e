"""deploy/compose by docker-compose's schema, and against what it starts."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "compose"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
SERVERS = {name: of for name, of in SERVICES.items() if name.startswith("server")}


def check(file):
    return subprocess.run(
        ["docker-compose", "-f", file, "config", "--quiet"], capture_output=True, text=True
    )


def flag(service, name):
    words = service["entrypoint"] + service["command"]
    return next(word.split("=")[1] for word in words if word.startswith(f"--{name}="))


@pytest.fixture
def envoy(tmp_path):
    """Envoy's configuration as its service makes it."""
    script = SERVICES["envoy"]["entrypoint"][2].splitlines()[0]
    made = tmp_path / "envoy.yaml"
    script = script.replace("/etc/envoy.yaml", str(ROOT / "deploy/proxy/envoy.yaml"))
    subprocess.run(["sh", "-c", script.replace("/tmp/envoy.yaml", str(made))], check=True)
    return yaml.safe_load(made.read_text())["static_resources"]


def test_is_what_compose_takes():
    assert check(FOLDER / "compose.yaml").returncode == 0


def test_a_misspelt_key_is_found(tmp_path):
    wrong = tmp_path / "compose.yaml"
    text = (FOLDER / "compose.yaml").read_text()
    wrong.write_text(text.replace("read_only:", "readonly:"))
    found = check(wrong)
    assert found.returncode != 0
    assert "readonly" in found.stderr


def test_every_file_that_is_mounted_is_there():
    mounts = [m for of in SERVICES.values() for m in of.get("volumes", []) if m.startswith(".")]
    files = [mount.split(":")[0] for mount in mounts]
    assert len(files) == 4
    for file in files:
        if file != "./attention":  # the certificates, which people make
            assert (FOLDER / file).is_file()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_starts_with_its_words(name):
    server = SERVERS[name]
    words = [os.environ["ATTENTION_SERVER"], *server["entrypoint"][1:]]
    # Its ports may be somebody else's here.
    ports = [word.split("=")[0] + "=0" for word in server["command"]]
    process = subprocess.Popen([*words, *ports], stderr=subprocess.PIPE, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        assert any('"event":"start"' in line for line in lines)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def commands(mark):
    """The blocks of docs/ten-minutes.md that begin with it."""
    page = (ROOT / "docs" / "ten-minutes.md").read_text()
    return re.findall(rf"^```sh {mark}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user, which root may")
def test_envoy_alone_reads_its_key_and_no_other(tmp_path):
    (tmp_path / "deploy" / "compose").mkdir(parents=True)
    certificates = commands("installed")[0]
    assert "authority.key" in certificates
    for script in (certificates, *commands("compose")):
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    folder = tmp_path / "deploy" / "compose" / "attention"
    assert sorted(os.listdir(folder)) == ["callers.crt", "tls.crt", "tls.key"]
    user = int(SERVICES["envoy"]["user"].split(":")[0])
    assert user != 0
    for path in (folder, *folder.iterdir()):
        assert path.stat().st_uid == user
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("folder", ["attention", "deploy/compose/attention"])
def test_git_leaves_keys_alone(folder):
    ignored = ["git", "check-ignore", "--quiet", f"{folder}/tls.key"]
    assert subprocess.run(ignored, cwd=ROOT).returncode == 0


def test_the_network_is_of_a_service_that_does_nothing():
    """A service that ends would take its network from those that share it."""
    network = SERVICES["network"]
    assert network["entrypoint"] == ["sleep", "infinity"]
    others = {name: of for name, of in SERVICES.items() if name != "network"}
    assert {of["network_mode"] for of in others.values()} == {"service:network"}
    assert not [name for name, of in others.items() if "ports" in of]


def test_servers_are_reached_through_envoy_alone(envoy):
    for of in SERVERS.values():
        # The image's own entry point would say 0.0.0.0.
        assert not [w for w in of["entrypoint"] + of["command"] if "address" in w]
    listeners = {of["name"]: of for of in envoy["listeners"]}
    assert sorted(listeners) == ["attention", "attention_tls"]
    addresses = {name: of["address"]["socket_address"] for name, of in listeners.items()}
    assert addresses["attention"]["address"] == "127.0.0.1"
    assert addresses["attention_tls"] == {"address": "0.0.0.0", "port_value": 8443}
    assert "transport_socket" in listeners["attention_tls"]["filter_chains"][0]
    assert SERVICES["network"]["ports"] == ["8443:8443", "127.0.0.1:9090:9090"]


def test_envoy_balances_over_the_servers(envoy):
    assert [of["name"] for of in envoy["clusters"]] == ["attention", "sequences"]
    for cluster in envoy["clusters"]:
        found = re.findall(r"'port_value': (\d+)", str(cluster))
        assert found == [flag(of, "grpc-port") for of in SERVERS.values()]
    health = [of["environment"]["ATTENTION_SERVER"] for of in SERVERS.values()]
    assert health == [f"127.0.0.1:{port}" for port in found]


def test_prometheus_reads_the_servers(tmp_path):
    for mount in SERVICES["prometheus"]["volumes"]:
        file, place = mount.split(":")[:2]
        if place.startswith("/etc/prometheus/"):
            shutil.copy(FOLDER / file, tmp_path / Path(place).name)
    subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], check=True)
    config = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    targets = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"127.0.0.1:{flag(of, 'http-port')}" for of in SERVERS.values()]


def test_a_server_has_time_to_drain():
    for of in SERVERS.values():
        drain = int(flag(of, "drain-delay").rstrip("s")) + 30  # --drain-time's default
        assert drain < int(of["stop_grace_period"].rstrip("s"))
