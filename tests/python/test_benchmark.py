from benchmark_script import rows_of


def test_it_measures_every_kind_of_call():
    rows = rows_of("python_client.py", "--seconds", "0.02", timeout=240)
    assert [row.count(" us |") for row in rows] == [2, 3, 2, 3, 2]
