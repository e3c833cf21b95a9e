"""What a cluster tells of itself: Ray's metrics, and progress in a terminal."""

import io
import re
import sys
import urllib.request

import ray
from waiting import wait_until


class Terminal(io.StringIO):
    def isatty(self):
        return True


def metric(name):
    """Its value at the node that has one: Ray's own page for Prometheus."""
    pattern = re.compile(rf"^ray_attention_cluster_{name}\{{[^}}]*\}} (\S+)$", re.M)
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            found = pattern.findall(page.read().decode())
        if found:
            return sum(map(float, found))
    return None


def test_metrics_have_the_ranges_and_what_was_exported(cluster, normal, tmp_path):
    with cluster.sequence(heads=2, width=16, range_keys=64) as sequence:
        sequence.append(normal(2, 300, 16), normal(2, 300, 16))
        size = sequence.export(str(tmp_path))
        wait_until(lambda: (metric("copied_bytes_total") or 0) >= 0.9 * size)
        wait_until(lambda: (metric("ranges") or 0) >= len(sequence.describe().ranges))
        wait_until(lambda: metric("nodes") == len(cluster.nodes()))


def test_an_export_is_shown_in_a_terminal(cluster, normal, tmp_path, monkeypatch):
    with cluster.sequence(heads=2, width=16, range_keys=64) as sequence:
        sequence.append(normal(2, 300, 16), normal(2, 300, 16))
        monkeypatch.setattr(sys, "stderr", Terminal())
        sequence.export(str(tmp_path))
        # 300 keys and values of 2 heads, 16 numbers each in FP32: 77 kB.
        assert re.search(r"export: 7\d\.\d?k?B?", sys.stderr.getvalue())


def test_nothing_is_shown_where_there_is_no_terminal(
    cluster, normal, tmp_path, monkeypatch
):
    with cluster.sequence(heads=2, width=16) as sequence:
        sequence.append(normal(2, 3, 16), normal(2, 3, 16))
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        sequence.export(str(tmp_path))
        assert sys.stderr.getvalue() == ""
