"""deploy/helm by Helm itself, and against the manifests of which it is made."""

import shutil
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "attention-server"
BASE = [
    yaml.safe_load(file.read_text())
    for file in (ROOT / "deploy" / "kubernetes" / "base").glob("*.yaml")
    if file.name != "kustomization.yaml"
]
POD_MONITOR = yaml.safe_load(
    (ROOT / "deploy" / "kubernetes" / "pod-monitor" / "pod-monitor.yaml").read_text()
)
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
EVERYTHING = {
    "image": {"repository": "registry.example/attention", "digest": DIGEST, "pullSecrets": ["pull"]},
    "extraArgs": ["--log-level=debug"],
    "resources": {"limits": {"cpu": "8", "memory": "16Gi"}},
    "tls": {"secretName": "mine"},
    "autoscaler": {"enabled": False},
    "replicas": 3,
    "networkPolicy": {"enabled": False},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
}


def render(values=None, chart=CHART):
    """The manifests by kind."""
    with helm.Chart.load(chart) as loaded:
        texts = loaded.render(values=values, name="mine", namespace="ours")
    objects = [
        of
        for name, text in texts.items()
        if name.endswith(".yaml")
        for of in yaml.safe_load_all(text)
        if of
    ]
    kinds = {of["kind"]: of for of in objects}
    assert len(kinds) == len(objects)
    return kinds


def test_lint_finds_nothing():
    found = helm.lint(CHART, strict=True)
    assert found["errors"] == []
    assert [of["error"] for of in found["messages"]] == ["icon is recommended"]


def test_it_is_the_manifests():
    rendered = render()
    for of in rendered.values():
        assert of["metadata"].pop("labels")["helm.sh/chart"] == f"attention-server-{VERSION}"
    container = rendered["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"attention-server:{VERSION}"
    container["image"] = "attention-server"
    assert rendered == {of["kind"]: of for of in BASE}


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["unchanged", "changed"])
def test_is_what_kubernetes_takes(values, version):
    for of in render(values).values():
        kubernetes_validate.validate(of, version, strict=True)


def test_values_are_taken():
    rendered = render(EVERYTHING)
    assert set(rendered) == {"Deployment", "Service", "PodDisruptionBudget"}
    spec = rendered["Deployment"]["spec"]
    assert spec["replicas"] == 3
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    assert container["image"] == f"registry.example/attention@{DIGEST}"
    assert container["args"][-1] == "--log-level=debug"
    assert container["resources"] == EVERYTHING["resources"]
    assert pod["volumes"][0]["secret"]["secretName"] == "mine"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["nodeSelector"] == EVERYTHING["nodeSelector"]
    assert pod["tolerations"] == EVERYTHING["tolerations"]


def test_the_autoscalers_size_is_a_value():
    scaler = render({"autoscaler": {"minReplicas": 4, "maxReplicas": 40}})["HorizontalPodAutoscaler"]
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (4, 40)


@pytest.mark.parametrize(
    "wrong", [{"replica": 2}, {"image": {"digest": "latest"}}, {"autoscaler": {"enabled": "no"}}]
)
def test_a_wrong_value_is_an_error(wrong):
    with pytest.raises(helm.HelmError):
        render(wrong)


def test_a_pod_monitor_is_there_where_it_is_asked_for():
    assert "PodMonitor" not in render()
    monitor = render({"podMonitor": {"enabled": True}})["PodMonitor"]
    monitor["metadata"].pop("labels")
    assert monitor == POD_MONITOR


def test_the_pod_monitor_finds_the_servers():
    (wanted,) = POD_MONITOR["spec"]["selector"]["matchExpressions"]
    stateful_set = yaml.safe_load(
        (ROOT / "deploy/kubernetes/sequences/stateful-set.yaml").read_text()
    )
    names = []
    for controller in (render()["Deployment"], stateful_set):
        template = controller["spec"]["template"]
        names.append(template["metadata"]["labels"][wanted["key"]])
        ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
        assert [of["port"] in ports for of in POD_MONITOR["spec"]["podMetricsEndpoints"]] == [True]
    assert (wanted["operator"], wanted["values"]) == ("In", names)
    assert POD_MONITOR["spec"]["podMetricsEndpoints"][0]["path"] == "/metrics"
    component = yaml.safe_load(
        (ROOT / "deploy/kubernetes/pod-monitor/kustomization.yaml").read_text()
    )
    assert component["resources"] == ["pod-monitor.yaml"]


def test_a_package_has_the_manifests(tmp_path):
    """Helm packs what the links lead to."""
    packed = helm.package(CHART, destination=tmp_path)
    shutil.unpack_archive(packed, tmp_path / "unpacked")
    assert render(chart=tmp_path / "unpacked" / "attention-server") == render()
