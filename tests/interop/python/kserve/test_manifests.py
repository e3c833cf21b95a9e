"""deploy/kubernetes/kserve by the types that the kserve SDK has for its resources."""

import re
from pathlib import Path

import kserve
import kubernetes.client
import pytest
import yaml

MANIFESTS = Path(__file__).parents[4] / "deploy" / "kubernetes" / "kserve"
TYPES = {
    "serving-runtime.yaml": kserve.V1alpha1ServingRuntime,
    "inference-service.yaml": kserve.V1beta1InferenceService,
}


def model(name):
    return getattr(kserve, name, None) or getattr(kubernetes.client, name, None)


def unknown_fields(value, name, path=""):
    """The paths of fields that the type of this name does not have."""
    if inner := re.fullmatch(r"list\[(.*)\]", name):
        return [x for i, of in enumerate(value) for x in unknown_fields(of, inner[1], f"{path}[{i}]")]
    type_ = model(name)
    if type_ is None or not isinstance(value, dict):
        return []
    types = {type_.attribute_map[field]: of for field, of in type_.openapi_types.items()}
    wrong = [f"{path}.{field}" for field in value if field not in types]
    for field in value.keys() & types.keys():
        wrong += unknown_fields(value[field], types[field], f"{path}.{field}")
    return wrong


@pytest.mark.parametrize("file", TYPES)
def test_is_what_kserve_takes(file):
    resource = yaml.safe_load((MANIFESTS / file).read_text())
    assert resource["kind"] in TYPES[file].__name__
    assert unknown_fields(resource, TYPES[file].__name__) == []


def test_a_misspelt_field_is_found():
    service = {"spec": {"predictor": {"model": {"modelFormat": {"nam": "attention"}}}}}
    wrong = unknown_fields(service, "V1beta1InferenceService")
    assert wrong == [".spec.predictor.model.modelFormat.nam"]


def test_the_service_names_the_runtime_and_its_format():
    runtime = yaml.safe_load((MANIFESTS / "serving-runtime.yaml").read_text())
    service = yaml.safe_load((MANIFESTS / "inference-service.yaml").read_text())
    wanted = service["spec"]["predictor"]["model"]
    assert wanted["runtime"] == runtime["metadata"]["name"]
    formats = [each["name"] for each in runtime["spec"]["supportedModelFormats"]]
    assert wanted["modelFormat"]["name"] in formats
    assert wanted["protocolVersion"] in runtime["spec"]["protocolVersions"]
