"""The console script, as a process and in this one."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import attention_client
from attention_client import Bilinear, bench
from attention_client.cli import main

DATA = Path(__file__).resolve().parents[1] / "data"
PNG = b"\x89PNG"


@pytest.fixture
def call(server):
    return lambda *arguments: main(["--server", server.target, *map(str, arguments)])


@pytest.fixture(params=["server", "local"])
def compute(request, server, monkeypatch):
    """As call, of commands that compute; by $ATTENTION_SERVER, local as well."""
    where = "local" if request.param == "local" else server.target
    monkeypatch.setenv("ATTENTION_SERVER", where)
    return lambda *arguments: main([str(argument) for argument in arguments])


def test_the_module_and_the_script_are_the_same(server):
    script = Path(sys.executable).with_name("attention")
    for program in ([sys.executable, "-m", "attention_client"], [script]):
        said = subprocess.run(
            [*program, "--server", server.target, "health"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout == "SERVING\n"


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    installed = importlib.metadata.version("attention-client")
    assert capsys.readouterr().out == f"attention {installed}\n"
    assert attention_client.__version__ == installed


def test_info_is_json(compute, capsys):
    assert compute("info") == 0
    assert json.loads(capsys.readouterr().out)["backends"][0]["name"] == "cpu"


def test_the_words_of_attention_client_do_the_same(call, tmp_path):
    out = tmp_path / "out.safetensors"
    data = DATA / "pytorch.safetensors"
    words = ["--deadline", "30", "attend", "--input", data, "--case", "multi_head/bias"]
    assert call(*words, "--output", out) == 0
    assert set(load_file(out)) == {"output"}


def test_a_missing_package_is_named_with_its_extra(call, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    assert (
        call("attend", DATA / "pytorch.safetensors", "--case", "multi_head/bias") == 1
    )
    said = capsys.readouterr().err
    assert "safetensors" in said and "attention-client[files,plots]" in said


@pytest.mark.parametrize("case", ["multi_head/bias", "additive/odd"])
def test_attend_answers_as_pytorch_did(compute, tmp_path, case):
    out = tmp_path / "out.safetensors"
    data = DATA / "pytorch.safetensors"
    assert compute("attend", data, "--case", case, "--out", out, "--weights") == 0
    expected, actual = load_file(data), load_file(out)
    assert set(actual) == {"output", "weights"}
    of_pytorch = {name: expected.get(f"{case}/{name}") for name in actual}
    assert of_pytorch["output"] is not None
    for name, array in of_pytorch.items():
        if array is not None:
            np.testing.assert_allclose(actual[name], array, atol=1e-5)


def test_options_reach_the_request(call, client, tmp_path, normal):
    x, m = normal(1, 4, 3), normal(3, 3)
    np.savez(tmp_path / "in.npz", query=x, key=x, value=x, m=m)
    out = tmp_path / "out.npz"
    flags = ["--causal", "bottom_right", "--lse", "--set", "softcap=2", "--set"]
    assert call("attend", tmp_path / "in.npz", *flags, "scale=0.5", "--out", out) == 0
    expected = client.attend(
        x, x, x, scoring=Bilinear(m, 0.5), causal="bottom_right", softcap=2, lse=True
    )
    with np.load(out) as actual:
        np.testing.assert_array_equal(actual["output"], expected.output)
        np.testing.assert_array_equal(actual["lse"], expected.lse)


def test_bfloat16_goes_from_file_to_file(call, tmp_path, normal):
    x = normal(1, 4, 8).astype(ml_dtypes.bfloat16)
    save_file({"query": x, "key": x, "value": x}, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    assert call("attend", tmp_path / "in.safetensors", "--out", out) == 0
    assert load_file(out)["output"].dtype == ml_dtypes.bfloat16


def test_heatmap_draws_what_attend_wrote(call, tmp_path):
    out, picture = tmp_path / "out.safetensors", tmp_path / "map.png"
    data = DATA / "minilm_layer3.safetensors"
    assert call("attend", data, "--weights", "--out", out) == 0
    assert call("heatmap", out, "--out", picture, "--entry", 1, "--head", 11) == 0
    assert picture.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["attend", "in.txt"], "expected .npz or .safetensors"),
        (["attend", "nowhere.npz"], "nowhere.npz"),
        (["attend", DATA / "pytorch.safetensors"], "no tensor query"),
        (["attend", "x.npz", "--set", "softcap"], "expected NAME=VALUE"),
        (
            ["attend", DATA / "minilm_layer3.safetensors", "--set", "softcap=-1"],
            "INVALID_ARGUMENT: softcap",
        ),
        (
            ["heatmap", DATA / "minilm_layer3.safetensors", "--out", "x.png"],
            "no tensor weights",
        ),
        (
            ["heatmap", DATA / "minilm_layer3.safetensors", "--out", "x.png"]
            + ["--tensor", "expected_weights", "--head", "12"],
            "--head: 12 (expected 0 to 11)",
        ),
        (["heatmap", "x.npz", "--out", "x.png", "--tensor", "a"], "a: shape (1,)"),
        (
            ["attend", DATA / "pytorch.safetensors", "--case", "additive/even"],
            "--case additive/even: not in the file (its cases: additive/",
        ),
        (["attend", "x.npz", "--case", "odd"], "its cases: none: leave --case out"),
        (["attend", "x.npz", "--set", "sigma=1"], "expected with --scoring gaussian"),
        (["attend", "x.npz", "--set", "name=a"], "expected with --scoring parameter"),
        (["attend", "x.npz", "--scoring", "parameter_set"], "expected --set name="),
        (["--timeout", "inf", "health"], "timeout: inf (expected seconds"),
    ],
)
def test_what_is_wrong_is_said(call, capsys, monkeypatch, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", a=np.ones(1))
    assert call(*arguments) == 1
    assert said in capsys.readouterr().err


def test_bench_measures_prints_and_draws(compute, capsys, tmp_path):
    picture, figures = tmp_path / "costs.png", tmp_path / "costs.json"
    options = ["--lengths", "4,8", "--widths", "16", "--heads", 2, "--seconds", 0]
    options += ["--scoring", "gaussian", "--scoring", "additive"]
    assert compute("bench", *options, "--out", picture, "--json", figures) == 0
    costs = json.loads(figures.read_text())
    assert [(c["scoring"], c["length"]) for c in costs] == [
        ("gaussian", 4),
        ("gaussian", 8),
        ("additive", 4),
        ("additive", 8),
    ]
    for cost in costs:
        assert cost["calls"] == 3
        assert cost["slow_seconds"] >= cost["seconds"] > cost["compute_seconds"] > 0
    output = capsys.readouterr()
    assert len(output.out.splitlines()) == 5
    assert output.err == ""  # progress is for terminals
    assert picture.read_bytes().startswith(PNG)


def test_ctrl_c_ends_in_a_sentence(call, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", interrupted)
    assert call("bench", "--lengths", "4") == 130
    assert capsys.readouterr().err == "\nattention: interrupted\n"


@pytest.mark.parametrize("lengths", ["0", "4,", "x"])
def test_bench_says_what_it_expects(call, capsys, lengths):
    with pytest.raises(SystemExit):
        call("bench", "--lengths", lengths)
    assert "expected numbers such as 16,64" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["health"], ["sequences", "list"]])
def test_what_is_about_a_server_wants_one(command, capsys):
    assert main(["--server", "local", *command]) == 1
    assert "local: this command is about a server" in capsys.readouterr().err
