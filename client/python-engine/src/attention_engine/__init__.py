"""Attention computed in this process, by the engine of the attention service.

    from attention_engine import Engine

    engine = Engine(threads=2)
    result = engine.attend(query, key, value, causal=True, weights=True)

Options, scoring functions, results and exceptions are those of attention_client.
"""

from attention_client import Result
from attention_engine._engine import Engine, EngineInfo, __version__

__all__ = ["Engine", "EngineInfo", "Result", "__version__"]
