"""Where the map places ranges by what servers say of their memory; none takes part."""

from placed import Placed


def test_layers_that_lag_find_the_room_that_is_theirs():
    placed = Placed({"a": 4 << 20, "b": 2 << 20}, layers=2)
    for layer in range(2):
        for _ in range(11):
            placed.append(layer, 500)
    assert placed.lengths == [5500, 5500]
