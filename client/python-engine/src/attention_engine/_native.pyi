from typing import Any, TypeAlias

from typing_extensions import Unpack

from attention_client import Options, Result

# What store.h says of them.
NewSequence: TypeAlias = tuple[int, int, int, str, int, str, str, int | None]
Description: TypeAlias = tuple[
    str, str, int, int, int, str, int, list[int], int, int | None, int
]

class Store:
    def __init__(self, memory_limit: int | None) -> None: ...
    @property
    def incarnation(self) -> int: ...
    def create(self, wanted: list[NewSequence]) -> list[str]: ...
    def append(
        self,
        name: str,
        layer: int,
        position: int | None,
        key: Any,
        value: Any,
        key_scale: Any,
        value_scale: Any,
    ) -> tuple[int, int]: ...
    def truncate(self, name: str, length: int) -> None: ...
    def fork(
        self,
        name: str,
        length: int | None,
        new_name: str,
        label: str | None,
        idle_limit_ms: int | None,
    ) -> str: ...
    def describe(self, name: str) -> Description: ...
    def list_all(self, label: str, is_prefix: bool) -> list[Description]: ...
    def delete(self, names: list[str]) -> int: ...
    def export(self, name: str, path: str, timeout: float | None) -> int: ...
    def import_(
        self,
        path: str,
        name: str,
        label: str,
        idle_limit_ms: int | None,
        timeout: float | None,
    ) -> str: ...
    def close(self) -> None: ...

class Engine:
    def __init__(self, threads: int, backend: str) -> None: ...
    def attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        out: Any = None,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Result: ...
    def attend_sequences(
        self,
        store: Store,
        entries: list[tuple[str, int, int | None]],
        query: Any,
        key: Any,
        value: Any,
        /,
        *,
        timeout: float | None = None,
        **options: Unpack[Options],
    ) -> Result: ...
    def facts(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
