"""Parameter sets in the service's own API, and kserve's form of loading."""

import grpc
import numpy as np
import pytest
from attention.v1 import attention_pb2 as v1
from attention.v1 import attention_pb2_grpc as rpc
from inference import grpc_service_pb2 as pb
from test_messages import array_of, raw_request


def to_tensor(array):
    return v1.Tensor(
        datatype=v1.DATA_TYPE_FP32, shape=array.shape, data=array.tobytes()
    )


@pytest.mark.parametrize("name", ["trained_additive", "trained_linear"])
def test_both_apis_give_the_same_bits(server, stub, problem, name):
    request = v1.AttendRequest(
        query=to_tensor(problem.query),
        key_value=v1.KeyValueTensors(
            key=to_tensor(problem.key), value=to_tensor(problem.value)
        ),
        parameter_set=v1.ParameterSet(name=name),
    )
    with grpc.insecure_channel(server.address) as channel:
        reply = rpc.AttentionServiceStub(channel).Attend(request)
    ours = np.frombuffer(reply.output.data, np.float32).reshape(reply.output.shape)
    theirs = array_of(stub.ModelInfer(raw_request(problem.tensors, name)))
    assert np.array_equal(ours, theirs)


def test_the_models_name_in_field_1(stub):
    load = pb.RepositoryModelLoadRequest(repository_name="trained_bilinear")
    stub.RepositoryModelLoad(load)
    assert stub.ModelReady(pb.ModelReadyRequest(name="trained_bilinear")).ready


def test_there_is_one_repository(stub):
    load = pb.RepositoryModelLoadRequest(
        repository_name="other", model_name="trained_bilinear"
    )
    index = pb.RepositoryIndexRequest(repository_name="other")
    for call, request in (
        (stub.RepositoryModelLoad, load),
        (stub.RepositoryIndex, index),
    ):
        with pytest.raises(grpc.RpcError) as raised:
            call(request)
        assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_the_index_of_what_is_ready(stub):
    ready = stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True))
    names = {model.name for model in ready.models}
    assert "trained_additive" in names and "broken" not in names
