"""What the tests of every client share: servers, and a model repository."""

import oracle
import pytest
from certificates import make_certificates, server_flags
from model_folders import add_model
from running_server import RunningServer


@pytest.fixture(scope="session")
def problem():
    return oracle.Problem()


@pytest.fixture(scope="session")
def repository(tmp_path_factory, problem):
    """trained_additive and trained_linear are one attention, stored both ways round."""
    folder = tmp_path_factory.mktemp("models")
    ours, linear = {"layout": "input_by_output"}, {"layout": "output_by_input"}
    add_model(
        folder,
        "trained_additive",
        {"scoring": "additive", "parameters": {"w_q": ours, "w_k": ours}},
        {"w_q": problem.w_q, "w_k": problem.w_k, "w_v": problem.w_v},
    )
    add_model(
        folder,
        "trained_linear",
        {
            "scoring": "additive",
            "parameters": {
                "w_q": {"tensor": "q.weight", **linear},
                "w_k": {"tensor": "k.weight", **linear},
                "w_v": {"tensor": "v.weight", **linear},
            },
        },
        {
            "q.weight": problem.w_q.T,
            "k.weight": problem.w_k.T,
            "v.weight": problem.w_v[None, :],
        },
    )
    add_model(
        folder,
        "trained_bilinear",
        {
            "scoring": "bilinear",
            "parameters": {"m": linear},
            "options": {"scale": 0.5},
        },
        {"m": problem.m.T},
    )
    add_model(folder, "decode", {"scoring": "scaled_dot_product", "sequences": True})
    add_model(folder, "broken", {"scoring": "cosine"})
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory, repository, unix_socket):
    """Everything that is off by default is on."""
    running = RunningServer(
        tmp_path_factory.mktemp("server") / "log",
        "--allow-shared-memory",
        "--allow-model-control",
        f"--grpc-unix-socket={unix_socket}",
        f"--model-repository={repository}",
    )
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def unix_socket(tmp_path_factory):
    """Where the server with everything on listens besides."""
    return tmp_path_factory.mktemp("socket") / "grpc"


@pytest.fixture(scope="session")
def plain_server(tmp_path_factory):
    """As it is without a flag."""
    running = RunningServer(tmp_path_factory.mktemp("plain_server") / "log")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_server(tmp_path_factory, certificates):
    """It encrypts, and asks its callers for certificates."""
    running = RunningServer(
        tmp_path_factory.mktemp("tls_server") / "log", *server_flags(certificates)
    )
    yield running
    assert running.stop() == 0
