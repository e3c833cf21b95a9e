"""The components of deploy/kubernetes that change who scales the servers.

KEDA's definition of a ScaledObject is not among Kubernetes' schemas. What stands here are the fields
and types of apis/keda/v1alpha1 in kedacore/keda (scaledobject_types.go), and what its Prometheus
scaler takes: those that releases from 2.8 on have.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from definitions import COUNT, TEXT, fields, spoiled

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
SCALED = yaml.safe_load((MANIFESTS / "keda" / "scaled-object.yaml").read_text())
BASE_SCALER = yaml.safe_load((MANIFESTS / "base" / "autoscaler.yaml").read_text())
SEQUENCES_SCALER = yaml.safe_load(
    (MANIFESTS / "sequences-autoscaler" / "autoscaler.yaml").read_text()
)

PROMETHEUS = fields(
    {"serverAddress": TEXT, "query": TEXT, "threshold": TEXT},
    activationThreshold=TEXT,
    namespace=TEXT,
    customHeaders=TEXT,
    ignoreNullValues={"enum": ["true", "false"]},
    unsafeSsl={"enum": ["true", "false"]},
    authModes=TEXT,
)
TRIGGER = fields(
    {"type": {"const": "prometheus"}, "metadata": PROMETHEUS},
    name=TEXT,
    metricType={"enum": ["AverageValue", "Value"]},
    authenticationRef={"type": "object"},
)
SPEC = fields(
    {
        "scaleTargetRef": fields({"name": TEXT}, apiVersion=TEXT, kind=TEXT),
        "triggers": {"type": "array", "items": TRIGGER, "minItems": 1},
    },
    pollingInterval=COUNT,
    cooldownPeriod=COUNT,
    idleReplicaCount=COUNT,
    minReplicaCount=COUNT,
    maxReplicaCount=COUNT,
    fallback={"type": "object"},
    advanced={"type": "object"},
)
OBJECT = fields(
    {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object"},
        "spec": SPEC,
    }
)


def built(tmp_path, of, component):
    """What kustomize makes of a base and a component, by kind."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl, which has kustomize")
    shutil.copytree(MANIFESTS, tmp_path / "kubernetes")
    (tmp_path / "overlay").mkdir()
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../kubernetes/{of}"],
        "components": [f"../kubernetes/{component}"],
    }
    (tmp_path / "overlay" / "kustomization.yaml").write_text(json.dumps(overlay))
    command = ["kubectl", "kustomize", tmp_path / "overlay"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {one["kind"]: one for one in yaml.safe_load_all(told)}


def test_is_what_keda_takes():
    jsonschema.validate(SCALED, OBJECT)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("minReplicas",), 2),
        (("maxReplicaCount",), "10"),
        (("triggers", 0, "metadata", "threshold"), 0.2),
        (("triggers", 0, "metadata", "ignoreNullValues"), False),
        (("triggers", 0, "metadata", "metric"), "attention_queue_work_seconds"),
    ],
)
def test_what_it_does_not_take_is_found(path, value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoiled(SCALED, path, value), OBJECT)


def test_keda_scales_as_the_autoscaler_that_it_replaces():
    spec, base = SCALED["spec"], BASE_SCALER["spec"]
    assert spec["scaleTargetRef"]["name"] == base["scaleTargetRef"]["name"]
    bounds = spec["minReplicaCount"], spec["maxReplicaCount"]
    assert bounds == (base["minReplicas"], base["maxReplicas"])
    (trigger,), (metric,) = spec["triggers"], base["metrics"]
    pods = metric["pods"]
    assert pods["metric"]["name"] in trigger["metadata"]["query"]
    assert trigger["metricType"] == pods["target"]["type"]
    assert f"{float(trigger['metadata']['threshold']) * 1000:.0f}m" == (
        pods["target"]["averageValue"]
    )


def test_the_query_is_the_work_of_all_servers_of_the_deployment(tmp_path):
    query = SCALED["spec"]["triggers"][0]["metadata"]["query"]
    series = [
        {"series": f'attention_queue_work_seconds{{pod="{pod}"}}', "values": value}
        for pod, value in (
            ("attention-server-5d9c7b-x2x4z", "0.25"),
            ("attention-server-5d9c7b-p9kqf", "0.5"),
            ("attention-sequences-0", "8"),
        )
    ]
    expected = {"expr": query, "eval_time": "0m", "exp_samples": [{"labels": "{}", "value": 0.75}]}
    tests = [{"interval": "1m", "input_series": series, "promql_expr_test": [expected]}]
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [], "tests": tests}))
    subprocess.run(["promtool", "test", "rules", tmp_path / "tests.yml"], check=True)


def test_with_keda_there_is_one_autoscaler(tmp_path):
    kinds = built(tmp_path, "base", "keda")
    assert kinds["ScaledObject"]["spec"] == SCALED["spec"]
    assert "HorizontalPodAutoscaler" not in kinds
    assert "replicas" not in kinds["Deployment"]["spec"]


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_the_autoscaler_of_sequences_is_what_kubernetes_takes(version):
    kubernetes_validate.validate(SEQUENCES_SCALER, version, strict=True)


def test_sequences_have_an_autoscaler_where_it_is_asked_for_alone(tmp_path):
    kinds = built(tmp_path, "sequences", "sequences-autoscaler")
    assert kinds["HorizontalPodAutoscaler"]["spec"] == SEQUENCES_SCALER["spec"]
    assert "replicas" not in kinds["StatefulSet"]["spec"]
    alone = yaml.safe_load((MANIFESTS / "sequences" / "stateful-set.yaml").read_text())
    assert alone["spec"]["replicas"] == SEQUENCES_SCALER["spec"]["minReplicas"]
    files = (MANIFESTS / "sequences").glob("*.yaml")
    assert not any(re.search("^kind: Horizontal", file.read_text(), re.M) for file in files)
