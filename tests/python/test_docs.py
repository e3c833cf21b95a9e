"""docs/python.md: what it shows works, and its tables are whole."""

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import readme
from pages import PAGE, ROOT, blocks
from safetensors.numpy import load_file, save_file

import attention_client
from attention_client import Client, LocalServer, _options, errors


@pytest.fixture
def names(normal, tmp_path):
    """What the page's code takes for given, with a server that has a parameter set."""
    folder = tmp_path / "name"
    folder.mkdir()
    parameters = {"m": {"layout": "input_by_output"}}
    config = {"scoring": "bilinear", "parameters": parameters}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"m": normal(8, 8)}, folder / "parameters.safetensors")
    with (
        LocalServer(model_repository=tmp_path) as server,
        Client(server.target) as client,
    ):
        yield {
            "client": client,
            "np": np,
            "query": normal(2, 4, 3, 8),
            "key": normal(2, 4, 5, 8),
            "value": normal(2, 4, 5, 8),
            "w_q": normal(8, 6),
            "w_k": normal(8, 6),
            "w_v": normal(6),
            "m": normal(8, 8),
        }


def run(code, names):
    exec(code.replace("127.0.0.1:8001", names["client"].target), names)


def test_the_readmes_code_runs(names, capsys):
    run(readme.block("python", "from attention_client import Client"), names)
    # Causal: the first query sees the first key alone.
    np.testing.assert_allclose(
        names["result"].output[..., 0, :], names["value"][..., 0, :], rtol=1e-6
    )
    assert names["result"].weights.shape == (2, 4, 3, 5)


@pytest.mark.parametrize(
    "heading, said",
    [
        ("One call", "(2, 4, 3, 8)"),
        ("Options", ""),
        ("In your own process", "cpu 2\n(2, 4, 3, 8)"),
        ("Keys that stay on the server", "1000 1007 (4, 7, 8)"),
        ("Many calls", "request 100 (2, 4, 3, 8)"),
        ("Keys on many servers", ""),
        ("asyncio", "(2, 4, 3, 8)"),
        ("Errors", "key key: shape [2, 4, 5, 3] has width 3, query has 8"),
        ("Shared memory", ""),
        ("Server and health", "SERVING"),
    ],
)
def test_the_code_runs(names, capsys, heading, said):
    run(blocks("python", heading), names)
    assert said in capsys.readouterr().out


def test_the_pictures_are_drawn(names, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run(blocks("python", "Pictures", "Kernel regression"), names)
    for name in ("weights.png", "costs.png", "regression.png"):
        assert (tmp_path / name).stat().st_size > 1000


def test_the_commands_run(server, tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    programs = Path(os.environ["ATTENTION_SERVER_BINARY"]).parent
    path = f"{programs}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", blocks("sh", "From the shell")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "ATTENTION_SERVER": server.target},
        check=True,
    )
    assert load_file(tmp_path / "answer.safetensors")["weights"].shape == (
        4,
        12,
        28,
        28,
    )


def test_the_code_of_keys_that_stay_runs(names, normal):
    page = (ROOT / "docs/resident-keys.md").read_text(encoding="utf-8")
    names |= {"keys": normal(8, 9, 128), "values": normal(8, 9, 128)}
    names |= {"key": normal(8, 1, 128), "value": normal(8, 1, 128)}
    names["query"] = normal(32, 1, 128)
    target = names["client"]
    run(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
    assert names["step"].output.shape == names["answer"].shape == (32, 1, 128)
    assert list(target.sequences()) == []


def test_the_tables_are_whole():
    cells = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    exceptions = {kind.__name__ for kind in errors._CLASSES.values()}
    options = set(_options.Options.__annotations__)
    assert named == options | exceptions | {"timeout", "metadata"}
    assert exceptions <= set(attention_client.__all__)
