"""The API's messages, made from its descriptors in a pool of their own.

Nothing here is generated code, and nothing is entered into protobuf's default pool:
the package works beside a program's own stubs of the same API.
"""

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_DESCRIPTORS = resources.files(__package__).joinpath("protocol.binpb").read_bytes()


def _messages() -> tuple[Any, dict[str, Any]]:
    files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS)
    pool: Any = descriptor_pool.DescriptorPool()
    found: dict[str, Any] = {}
    for file in files.file:
        pool.Add(file)
        for message in file.message_type:
            name = f"{file.package}.{message.name}"
            found[name] = message_factory.GetMessageClass(
                pool.FindMessageTypeByName(name)
            )
    return pool, found


_POOL, _CLASSES = _messages()


def message(name: str) -> Any:
    """The class of a message, such as "attention.v1.Tensor"."""
    return _CLASSES[name]


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
