from benchmark_script import rows_of


def test_it_measures_every_kind_of_call():
    rows = rows_of("python_client.py", "--seconds", "0.02", timeout=240)
    assert [row.count(" us |") for row in rows] == [2, 3, 2, 3, 2]


def test_it_measures_a_call_in_process_beside_one_in_cpp():
    rows = rows_of(
        "python_engine.py", "--rounds", "1", "--seconds", "0.02", timeout=120
    )
    assert [row.count(" us |") for row in rows] == [3, 3, 3]


def test_it_measures_steps_of_decoding_wherever_keys_are():
    cases = ["--cases", "1x64,3x100", "--seconds", "0.02"]
    rows = rows_of("python/resident/__main__.py", *cases, timeout=240)
    assert [row.count(" ms |") for row in rows] == [4, 4]
