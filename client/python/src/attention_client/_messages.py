"""The API's messages, made from its descriptors in a pool of their own.

Nothing here is generated code, and nothing is entered into protobuf's default pool:
the package works beside a program's own stubs of the same API.
"""

from functools import cache
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DESCRIPTORS = resources.files(__package__).joinpath("protocol.binpb").read_bytes()


def _pool() -> Any:
    files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS)
    pool: Any = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _pool()


@cache
def message(name: str) -> Any:
    """The class of a message, such as "attention.v1.Tensor"."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


def own(name: str) -> Any:
    """The class of a message of attention.v1, such as "Tensor"."""
    return message(f"attention.v1.{name}")


def enum(name: str) -> dict[str, int]:
    """An enum's values by their names without the enum's own: {"FP32": 1, ...}."""
    values: list[Any] = list(_POOL.FindEnumTypeByName(name).values)
    prefix = values[0].name.rpartition("_")[0] + "_"
    if not all(value.name.startswith(prefix) for value in values):
        prefix = ""
    return {value.name.removeprefix(prefix): value.number for value in values}


def numbers(name: str) -> dict[str, int]:
    """The numbers of a message's fields by their names."""
    fields: list[Any] = message(name).DESCRIPTOR.fields
    return {field.name: field.number for field in fields}
