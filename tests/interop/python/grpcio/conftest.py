import grpc
import pytest
from inference import grpc_service_pb2_grpc as oip


@pytest.fixture
def stub(server):
    with grpc.insecure_channel(server.address) as channel:
        generated = oip.GRPCInferenceServiceStub(channel)
        generated.channel = channel  # for calls with bytes as they are
        yield generated
