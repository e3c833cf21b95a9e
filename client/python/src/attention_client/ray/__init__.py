"""Keys and values over the nodes of a Ray cluster.

    from attention_client.ray import AttentionCluster

    with AttentionCluster(nodes=4) as cluster:
        with cluster.sequence(heads=8, width=128) as sequence:
            sequence.append(key, value)                # (Hkv, n, D)
            output = sequence.attend(query).output     # (Hq, Lq, D)

Ray places the servers, watches them and finds them; queries go to them over gRPC.
docs/scaling.md of the project says what that costs, and what is lost when a node dies.
Needs the extra `ray` and the package attention-server.
"""

from attention_client.ray.cluster import AttentionCluster
from attention_client.ray.node import NodeReport
from attention_client.ray.ranges import Range, Replica, SequenceMap
from attention_client.ray.sequence import (
    ShardedDescription,
    ShardedResult,
    ShardedSequence,
)

__all__ = [
    "AttentionCluster",
    "NodeReport",
    "Range",
    "Replica",
    "SequenceMap",
    "ShardedDescription",
    "ShardedResult",
    "ShardedSequence",
]
