import pytest
import tritonclient.grpc as triton


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.address) as connected:
        yield connected


@pytest.fixture
def plain_client(plain_server):
    with triton.InferenceServerClient(plain_server.address) as connected:
        yield connected
