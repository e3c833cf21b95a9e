from typing import Any

from typing_extensions import Unpack

from attention_client import Options, Result

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
    def facts(self) -> dict[str, Any]: ...
    def close(self) -> None: ...
