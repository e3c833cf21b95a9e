from benchmark_script import rows_of


def test_it_measures_every_way():
    rows = rows_of("minilm.py", seconds=0, timeout=600)
    assert [row.count(" ms |") for row in rows] == [4] * 6
