"""deploy/kubernetes/ray's RayService by the fields that KubeRay has.

Its definition of the resource is in no package of PyPI's or Debian's. What stands here are the
fields of a specification and their types, of ray-operator/apis/ray/v1 in ray-project/kuberay
(rayservice_types.go, raycluster_types.go): those that releases from 1.0 on have. The pods within
it are checked by Kubernetes' schema, in test_manifests.py.
"""

from pathlib import Path

import jsonschema
import pytest
import yaml
from definitions import COUNT, FLAG, TEXT, fields, spoiled

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "ray" / "ray-service.yaml"

TEXTS = {"type": "object", "additionalProperties": TEXT}
POD = {"type": "object"}

HEAD = fields(
    {"rayStartParams": TEXTS, "template": POD},
    serviceType=TEXT,
    headService={"type": "object"},
    enableIngress=FLAG,
)
WORKERS = fields(
    {
        "groupName": TEXT,
        "minReplicas": COUNT,
        "maxReplicas": COUNT,
        "rayStartParams": TEXTS,
        "template": POD,
    },
    replicas=COUNT,
    numOfHosts=COUNT,
    scaleStrategy={"type": "object"},
)
CLUSTER = fields(
    {"headGroupSpec": HEAD},
    workerGroupSpecs={"type": "array", "items": WORKERS},
    rayVersion=TEXT,
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions={"type": "object"},
    headServiceAnnotations=TEXTS,
    suspend=FLAG,
)
SERVICE = fields(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayService"},
        "metadata": {"type": "object"},
        "spec": fields({"serveConfigV2": TEXT, "rayClusterConfig": CLUSTER}, serveService=POD),
    }
)


@pytest.fixture
def service():
    return yaml.safe_load(MANIFEST.read_text())


def test_is_what_kuberay_takes(service):
    jsonschema.validate(service, SERVICE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("serveConfig",), ""),
        (("serveConfigV2",), {}),
        (("rayClusterConfig", "rayVersion"), 2.6),
        (("rayClusterConfig", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("rayClusterConfig", "workerGroupSpecs", 0, "minReplicas"), "1"),
        (("rayClusterConfig", "workerGroupSpecs", 0, "name"), "replicas"),
    ],
)
def test_what_it_does_not_take_is_found(service, path, value):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoiled(service, path, value), SERVICE)


def test_a_worker_has_room_for_its_replicas(service):
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    (replica,) = application["deployments"]
    needs = replica["ray_actor_options"]
    (group,) = service["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    limits = container["resources"]["limits"]
    replicas = int(limits["cpu"]) // needs["num_cpus"]
    assert replicas == 2
    # 2 GiB are left for Ray itself.
    assert replicas * needs["memory"] <= (int(limits["memory"].removesuffix("Gi")) - 2) << 30


def test_the_workers_have_room_between_their_bounds(service):
    for group in service["spec"]["rayClusterConfig"]["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
