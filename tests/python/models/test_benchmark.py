from benchmark_script import rows_of


def test_it_measures_every_way():
    rows = rows_of("minilm.py", "--seconds", "0", timeout=600)
    assert [row.count(" ms |") for row in rows] == [5] * 6


def test_it_measures_wherever_keys_are():
    arguments = ["--contexts", "20,70", "--tokens", "3"]
    rows = rows_of("llama_cache.py", *arguments, timeout=600)
    assert [row.count("/s |") for row in rows] == [5, 5]
