"""deploy/kubernetes/base by Kubernetes' schemas, and against what it starts."""

import os
import re
import subprocess
import urllib.request
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from certificates import make_certificates, server_flags
from running_server import RunningServer

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
BASE = {
    file.name: yaml.safe_load(file.read_text())
    for file in sorted((MANIFESTS / "base").glob("*.yaml"))
}
RESOURCES = {name: of for name, of in BASE.items() if name != "kustomization.yaml"}
SEQUENCES = {
    file.name: yaml.safe_load(file.read_text())
    for file in sorted((MANIFESTS / "sequences").glob("*.yaml"))
}
SEQUENCES_SCALER = yaml.safe_load(
    (MANIFESTS / "sequences-autoscaler" / "autoscaler.yaml").read_text()
)
KSERVE = {
    file.name: yaml.safe_load(file.read_text())
    for file in sorted((MANIFESTS / "kserve").glob("*.yaml"))
}
RAY = {
    file.name: yaml.safe_load(file.read_text())
    for file in sorted((MANIFESTS / "ray").glob("*.yaml"))
}
CONTAINERS = {
    "base": BASE["deployment.yaml"]["spec"]["template"]["spec"]["containers"][0],
    "sequences": SEQUENCES["stateful-set.yaml"]["spec"]["template"]["spec"]["containers"][0],
    "kserve": KSERVE["serving-runtime.yaml"]["spec"]["containers"][0],
}
OLDEST, NEWEST = "1.27", kubernetes_validate.latest_version()


def each_container(test):
    return pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)(test)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", RESOURCES)
def test_is_what_kubernetes_takes(name, version):
    kubernetes_validate.validate(RESOURCES[name], version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", sorted(SEQUENCES.keys() - {"kustomization.yaml"}))
def test_the_stateful_set_is_what_kubernetes_takes(name, version):
    kubernetes_validate.validate(SEQUENCES[name], version, strict=True)


def spread_over(controller):
    """The labels of the pods that its own are spread with."""
    (constraint,) = controller["spec"]["template"]["spec"]["topologySpreadConstraints"]
    return constraint["labelSelector"]["matchLabels"]


def test_the_stateful_sets_parts_fit():
    resources = SEQUENCES["kustomization.yaml"]["resources"]
    assert sorted(resources) == sorted(SEQUENCES.keys() - {"kustomization.yaml"})
    of = SEQUENCES["stateful-set.yaml"]["spec"]
    labels = of["template"]["metadata"]["labels"]
    selectors = [
        of["selector"]["matchLabels"],
        SEQUENCES["service.yaml"]["spec"]["selector"],
        SEQUENCES["disruption-budget.yaml"]["spec"]["selector"]["matchLabels"],
        SEQUENCES["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"],
        spread_over(SEQUENCES["stateful-set.yaml"]),
    ]
    assert all(selector == labels for selector in selectors)
    assert of["serviceName"] == SEQUENCES["service.yaml"]["metadata"]["name"]
    target = SEQUENCES_SCALER["spec"]["scaleTargetRef"]
    assert target["kind"] == SEQUENCES["stateful-set.yaml"]["kind"]
    assert target["name"] == SEQUENCES["stateful-set.yaml"]["metadata"]["name"]
    assert SEQUENCES["kustomization.yaml"]["images"] == BASE["kustomization.yaml"]["images"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_rays_pods_are_what_kubernetes_takes(version):
    for name in RAY.keys() - {"kustomization.yaml", "ray-service.yaml"}:
        kubernetes_validate.validate(RAY[name], version, strict=True)
    cluster = RAY["ray-service.yaml"]["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "ray", **group["template"]["metadata"]},
            "spec": group["template"]["spec"],
        }
        kubernetes_validate.validate(pod, version, strict=True)


def test_rays_parts_fit():
    resources = RAY["kustomization.yaml"]["resources"]
    assert sorted(resources) == sorted(RAY.keys() - {"kustomization.yaml"})
    spec = RAY["ray-service.yaml"]["spec"]
    port = yaml.safe_load(spec["serveConfigV2"])["grpc_options"]["port"]
    of_service = RAY["service.yaml"]["spec"]
    assert [one["port"] for one in of_service["ports"]] == [port]
    cluster = spec["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        labels = group["template"]["metadata"]["labels"]
        assert labels.items() <= of_service["selector"].items()
        assert labels == RAY["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"]
        (container,) = group["template"]["spec"]["containers"]
        assert {"name": "grpc", "containerPort": port} in container["ports"]


def test_a_misspelt_field_is_found():
    wrong = {**RESOURCES["service.yaml"], "spce": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def test_the_list_has_every_file():
    assert sorted(BASE["kustomization.yaml"]["resources"]) == sorted(RESOURCES)


def test_selectors_find_the_pods():
    labels = BASE["deployment.yaml"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        BASE["deployment.yaml"]["spec"]["selector"]["matchLabels"],
        BASE["service.yaml"]["spec"]["selector"],
        BASE["disruption-budget.yaml"]["spec"]["selector"]["matchLabels"],
        BASE["network-policy.yaml"]["spec"]["podSelector"]["matchLabels"],
        spread_over(BASE["deployment.yaml"]),
    ]
    assert all(selector == labels for selector in selectors)
    assert BASE["autoscaler.yaml"]["spec"]["scaleTargetRef"]["name"] == "attention-server"


def seconds(flag, arguments):
    return int(next(re.fullmatch(rf"{flag}=(\d+)s", a) for a in arguments if flag in a)[1])


PODS = {
    "base": BASE["deployment.yaml"]["spec"]["template"]["spec"],
    "sequences": SEQUENCES["stateful-set.yaml"]["spec"]["template"]["spec"],
    "kserve": KSERVE["serving-runtime.yaml"]["spec"],  # has no field for the time
}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_the_pod_has_time_to_drain(pod):
    flags = pod["containers"][0]["args"]
    drain = seconds("--drain-delay", flags) + seconds("--drain-time", flags)
    assert drain < pod.get("terminationGracePeriodSeconds", 30)  # 30 is Kubernetes' default


def test_containers_of_the_pages_have_time_to_drain():
    """Docker's own 10 s are less than the 30 s of --drain-time."""
    for page in ("docs/cuda.md", "docs/operations/install.md", "docker/Dockerfile.cuda"):
        commands = re.findall(r"^(?:#   )?(docker run .*)", (ROOT / page).read_text(), re.MULTILINE)
        assert commands
        assert [c for c in commands if "--stop-timeout 40" not in c] == []


GIB = {"Gi": 1.0, "GiB": 1.0, "MiB": 1 / 1024}


def gib(size):
    number, unit = re.fullmatch(r"(\d+)(\w+)", size).groups()
    return int(number) * GIB[unit]


def test_the_autoscaler_of_sequences_acts_before_they_are_full():
    (container,) = SEQUENCES["stateful-set.yaml"]["spec"]["template"]["spec"]["containers"]
    sizes = dict(a.split("=") for a in container["args"] if a.endswith("iB"))
    metric = SEQUENCES_SCALER["spec"]["metrics"][0]["resource"]
    target = metric["target"]["averageUtilization"] / 100
    request = gib(container["resources"]["requests"][metric["name"]])
    # Kubernetes leaves 10 % beyond the target alone (--horizontal-pod-autoscaler-tolerance).
    assert 1.1 * target * request < gib(sizes["--resident-memory-limit"])
    # And requests alone are no reason for another server.
    assert target * request > gib(sizes["--memory-limit"])


@each_container
def test_the_server_has_its_flags(container):
    usage = subprocess.run(
        [os.environ["ATTENTION_SERVER"], "--help"], capture_output=True, text=True, check=True
    ).stdout
    for argument in container["args"]:
        assert re.search(rf"{argument.split('=')[0]}\b", usage)
    for variable in container.get("env", []):
        assert f"[{variable['name']}]" in re.sub(r"\s+", " ", usage)


def test_everything_has_the_servers_version():
    told = subprocess.run(
        [os.environ["ATTENTION_SERVER"], "--version"], capture_output=True, text=True, check=True
    ).stdout
    version = re.match(r"attention-server (\d+\.\d+\.\d+)", told)[1]
    assert BASE["kustomization.yaml"]["images"] == [{"name": "attention-server", "newTag": version}]
    assert CONTAINERS["kserve"]["image"] == f"attention-server:{version}"
    ray = (MANIFESTS / "ray" / "ray-service.yaml").read_text()
    assert set(re.findall(r"image: (.*)", ray)) == {f"attention-ray:{version}"}
    chart = yaml.safe_load((ROOT / "deploy/helm/attention-server/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    for package in ["python", "python-engine", "python-server"]:
        project = (ROOT / "client" / package / "pyproject.toml").read_text()
        assert f'version = "{version}"' in project
        ours = re.findall(rf"attention-(?:client|engine|server)=={re.escape(version)}", project)
        assert project.count("==") == len(ours)


@each_container
def test_the_server_answers_its_probes(container, tmp_path):
    flags = []
    if any(argument.startswith("--tls-certificate") for argument in container["args"]):
        flags = server_flags(make_certificates(tmp_path), mutual=False)
    server = RunningServer(tmp_path / "log", *flags)
    try:
        probes = [of["httpGet"] for name, of in container.items() if name.endswith("Probe")]
        assert len(probes) >= 2
        for probe in probes:
            url = f"http://{server.http_address}{probe['path']}"
            with urllib.request.urlopen(url, timeout=30) as reply:
                assert reply.status == 200
    finally:
        assert server.stop() == 0


@each_container
def test_one_slow_answer_takes_no_server_out(container):
    for name in ("readinessProbe", "livenessProbe"):
        probe = container[name]
        assert probe["timeoutSeconds"] >= 5
        assert probe.get("failureThreshold", 3) >= 3  # 3 is Kubernetes' default


def test_how_many_servers_there_are_is_the_autoscalers_alone():
    assert "autoscaler.yaml" in BASE["kustomization.yaml"]["resources"]
    assert "replicas" not in BASE["deployment.yaml"]["spec"]


def test_knative_takes_the_runtimes_environment():
    """By default it refuses what a variable takes from the pod (features.knative.dev)."""
    for variable in CONTAINERS["kserve"].get("env", []):
        assert not {"fieldRef", "resourceFieldRef"} & set(variable.get("valueFrom", {}))


def test_the_autoscalers_metric_is_one_of_the_servers():
    metric = BASE["autoscaler.yaml"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert f"| `{metric}` | gauge |" in (ROOT / "docs" / "metrics.md").read_text()
