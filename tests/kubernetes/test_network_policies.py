"""Whom the NetworkPolicies of deploy/kubernetes let in."""

import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"
FOLDERS = [file.parent for file in sorted(MANIFESTS.glob("*/kustomization.yaml"))]
CLIENTS = {"podSelector": {"matchLabels": {"attention-client": "true"}}}


def policy_of(folder):
    return yaml.safe_load((MANIFESTS / folder / "network-policy.yaml").read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kustomize_changes_no_selector(folder):
    """It would change those of the callers, under from, as well: no client has such labels."""
    of = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert "commonLabels" not in of
    assert [labels for labels in of.get("labels", []) if labels.get("includeSelectors")] == []


@pytest.mark.parametrize("folder", ["base", "sequences", "ray"])
def test_clients_are_known_by_their_label_alone(folder):
    callers = [rule["from"] for rule in policy_of(folder)["spec"]["ingress"]]
    assert [CLIENTS] in callers


@pytest.mark.parametrize("version", ["1.27", kubernetes_validate.latest_version()])
def test_the_pages_policy_lets_clients_of_another_namespace_in(version):
    page = (ROOT / "docs" / "operations" / "install.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    policy = yaml.safe_load(block)
    kubernetes_validate.validate(policy, version, strict=True)
    base = policy_of("base")["spec"]
    assert policy["metadata"]["name"] != policy_of("base")["metadata"]["name"]
    assert policy["spec"]["podSelector"] == base["podSelector"]
    (rule,) = policy["spec"]["ingress"]
    (clients,) = [of for of in base["ingress"] if of["from"] == [CLIENTS]]
    assert rule["ports"] == clients["ports"]
    # One entry: as two, they would let in all of that namespace, and these pods of this one.
    (caller,) = rule["from"]
    assert caller == CLIENTS | {"namespaceSelector": caller["namespaceSelector"]}
