"""What calls cost, measured by the package itself."""

import pytest

from attention_client.bench import measure, table


def test_every_function_is_measured_at_every_length(computing):
    costs = measure(
        computing,
        lengths=(4, 8),
        widths=(16,),
        scorings=("gaussian", "additive"),
        heads=2,
        seconds=0,
    )
    assert [(cost.scoring, cost.length) for cost in costs] == [
        ("gaussian", 4),
        ("gaussian", 8),
        ("additive", 4),
        ("additive", 8),
    ]
    for cost in costs:
        assert cost.calls == 3
        assert cost.slow_seconds >= cost.seconds > cost.compute_seconds > 0
    assert len(table(costs).splitlines()) == 5


def test_an_unknown_function_is_said(engine):
    with pytest.raises(ValueError, match="scorings: 'cosine'"):
        measure(engine, scorings=("cosine",))
