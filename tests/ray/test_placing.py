"""Where the map places ranges by what servers say of their memory; none takes part."""

import pytest
from placed import PER_KEY, Placed

from attention_client import ResourceExhaustedError
from attention_client.ray.ranges import PAGE

ROOM = 4096 * PER_KEY


def test_layers_that_lag_find_the_room_that_is_theirs():
    placed = Placed({"a": 4 << 20, "b": 2 << 20}, layers=2)
    for layer in range(2):
        for _ in range(11):
            placed.append(layer, 500)
    assert placed.lengths == [5500, 5500]


def test_a_second_replica_with_less_room_shortens_the_range():
    placed = Placed({"a": 2 * ROOM, "b": ROOM}, replicas=2)
    part = placed.next_range(6000)
    assert {replica.node for replica in part.replicas} == {"a", "b"}
    assert ROOM - 3 * PAGE * PER_KEY < part.capacity * PER_KEY < ROOM


def test_a_second_replica_passes_over_a_server_that_is_full():
    placed = Placed({"a": 3 * ROOM, "b": 2 * ROOM, "c": ROOM}, replicas=2)
    placed.servers["b"].is_full = True
    part = placed.next_range(2048)
    assert [replica.node for replica in part.replicas] == ["a", "c"]
    assert part.capacity == 2048


def test_a_second_replica_without_a_place_leaves_none_of_the_first():
    placed = Placed({"a": 2 * ROOM, "b": ROOM}, replicas=2)
    placed.servers["b"].is_full = True
    with pytest.raises(ResourceExhaustedError):
        placed.next_range(2048)
    assert placed.servers["a"].names == []


def test_a_range_goes_to_no_node_without_memory_for_a_page():
    placed = Placed({"a": ROOM, "b": ROOM})
    for server in placed.servers.values():
        server.held = ROOM - PAGE * PER_KEY
    with pytest.raises(ResourceExhaustedError, match="no memory for 64 keys"):
        placed.next_range(2048)
    placed.servers["b"].held = 0
    (replica,) = placed.next_range(2048).replicas
    assert replica.node == "b"


def test_what_is_set_aside_is_taken_where_no_other_node_has_room():
    placed = Placed({"a": ROOM})
    placed.other("a", 4096)
    placed.servers["a"].held = ROOM // 2  # the other one has no more
    assert placed.next_range(4096).capacity * PER_KEY > ROOM // 2 - 3 * PAGE * PER_KEY
