"""Calls of KeyValueService and of Attend on sequences, over a channel."""

import re

import grpc
import numpy as np
from attention.v1 import attention_pb2 as pb
from attention.v1 import attention_pb2_grpc as rpc


STORED = {np.dtype(np.int8): pb.DATA_TYPE_INT8, np.dtype(np.uint8): pb.DATA_TYPE_FP8}


def tensor(array):
    """INT8 of int8, FP8 of uint8 (its bits), FP32 of the rest."""
    if array.dtype in STORED:
        datatype, data = STORED[array.dtype], array.tobytes()
        return pb.Tensor(datatype=datatype, shape=array.shape, data=data)
    data = np.ascontiguousarray(array, "<f4").tobytes()
    return pb.Tensor(datatype=pb.DATA_TYPE_FP32, shape=array.shape, data=data)


def array_of(message):
    return np.frombuffer(message.data, "<f4").reshape(tuple(message.shape))


def form(layers=1, heads=1, width=4, value_width=None, datatype=pb.DATA_TYPE_FP32):
    return pb.SequenceForm(
        heads=heads,
        key_width=width,
        value_width=width if value_width is None else value_width,
        datatype=datatype,
        layers=layers,
    )


def attend_request(names, query, appended=None, **options):
    """`appended`: key and value; of INT8 and FP8 key_scale and value_scale, too."""
    request = pb.AttendRequest(id="sequences", query=tensor(query), **options)
    for name in names:
        request.sequences.entries.add(name=name)
    if appended:
        for field, array in zip(("key", "value", "key_scale", "value_scale"), appended):
            getattr(request.sequences.append, field).CopyFrom(tensor(array))
    return request


class Sequences:
    """With the metadata of one caller."""

    def __init__(self, channel, metadata=(), timeout=60):
        self.store = rpc.KeyValueServiceStub(channel)
        self.attention = rpc.AttentionServiceStub(channel)
        self._with = {"metadata": metadata, "timeout": timeout}

    def create(self, *names, form=form(), **fields):
        new = [pb.NewSequence(name=name, form=form, **fields) for name in names]
        request = pb.CreateSequencesRequest(sequences=new)
        return list(self.store.Create(request, **self._with).names)

    def append(self, name, key, value, key_scale=None, value_scale=None, **fields):
        request = pb.AppendRequest(
            name=name, key=tensor(key), value=tensor(value), **fields
        )
        if key_scale is not None:
            request.key_scale.CopyFrom(tensor(key_scale))
            request.value_scale.CopyFrom(tensor(value_scale))
        return self.store.Append(request, **self._with)

    def truncate(self, name, length):
        request = pb.TruncateRequest(name=name, length=length)
        return self.store.Truncate(request, **self._with)

    def fork(self, name, **fields):
        request = pb.ForkRequest(name=name, **fields)
        return self.store.Fork(request, **self._with).name

    def describe(self, name):
        request = pb.DescribeSequenceRequest(name=name)
        return self.store.Describe(request, **self._with)

    def list(self, **fields):
        return self.store.List(pb.ListSequencesRequest(**fields), **self._with)

    def all_names(self, page_size=1000, **fields):
        """Page by page, in the server's order."""
        names, token = [], ""
        while True:
            page = self.list(page_size=page_size, page_token=token, **fields)
            names += [one.name for one in page.sequences]
            token = page.next_page_token
            if not token:
                return names

    def delete(self, *names):
        request = pb.DeleteSequencesRequest(names=names)
        return self.store.Delete(request, **self._with).deleted

    def export_to(self, name, file):
        request = pb.ExportSequenceRequest(name=name, file=file)
        return self.store.Export(request, **self._with)

    def import_from(self, file, name=""):
        request = pb.ImportSequenceRequest(file=file, name=name)
        return self.store.Import(request, **self._with)

    def attend(self, *request, **options):
        return self.attention.Attend(attend_request(*request, **options), **self._with)

    def held_bytes(self):
        """Of all sequences at the server: what it says where more is asked for than there
        can be. Its limit must be less than 64 MiB."""
        wide = pb.SequenceForm(
            heads=1, key_width=1 << 18, value_width=0, datatype=pb.DATA_TYPE_FP32
        )
        (name,) = self.create("", form=wide)
        try:
            key, value = np.zeros((1, 1, 1 << 18)), np.zeros((1, 1, 0))
            self.append(name, key, value)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
            held = int(re.search(r"sequences hold (\d+) of", error.details()).group(1))
            return held
        finally:
            self.delete(name)
        raise AssertionError("the server has room for everything")
