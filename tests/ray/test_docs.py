"""docs/scaling.md: what it shows works."""

import importlib.metadata
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"


def test_the_pages_code_runs(cluster, normal):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (code,) = [block for block in blocks if "AttentionCluster(nodes=4) as" in block]
    # With the tests' own cluster.
    for shown, here in (
        ('ray.init(address="auto")\n', ""),
        ("AttentionCluster(nodes=4)", "AttentionCluster.connect()"),
    ):
        assert shown in code
        code = code.replace(shown, here)
    key, value = normal(8, 5, 128), normal(8, 5, 128)
    names = {"query": normal(32, 5, 128), "key": key, "value": value}
    exec(code, names)
    assert names["output"].shape == names["step"].output.shape == (32, 5, 128)


def test_the_extra_brings_the_server_that_nodes_start():
    extras = importlib.metadata.requires("attention-client")
    assert 'attention-client[server]; extra == "ray"' in extras
    assert any(
        re.match(r"attention-server==.*extra == \"server\"", one) for one in extras
    )
