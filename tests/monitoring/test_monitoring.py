"""deploy/monitoring against what a running server exports: real load, a real Prometheus."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

BINARIES = Path(os.environ["ATTENTION_BINARIES"])
REPOSITORY = Path(__file__).resolve().parents[2]
MONITORING = REPOSITORY / "deploy" / "monitoring"
OURS = re.compile(r"\b(?:attention|grpc_server|process)_[a-z_]+\b")
PATIENCE = 120.0  # seconds


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
        return reply.read().decode()


def until(what, seconds=PATIENCE):
    """Polls for something that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := what():
                return found
        except urllib.error.URLError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")


def expressions_of_dashboard():
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]


class Runbooks(unittest.TestCase):
    def test_every_alert_names_its_page_and_every_page_has_its_alert(self):
        rules = (MONITORING / "alerts.yml").read_text()
        alerts = re.findall(r"- alert: (\w+)", rules)
        named = re.findall(r"runbook: (\S+)", rules)
        self.assertEqual(named, [f"docs/operations/alerts/{name}.md" for name in alerts])
        pages = (REPOSITORY / "docs" / "operations" / "alerts").glob("*.md")
        self.assertEqual({page.stem for page in pages}, set(alerts))


class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.grpc, cls.http = cls.start_server(BINARIES)
        _, cls.http_of_devices = cls.start_server_with_device()
        # A call in every way, one that is wrong, and then a load that lasts.
        cls.load("--seconds", "1")
        cls.load("--seconds", "1", "--stream")
        cls.load("--seconds", "1", "--api", "inference")
        cls.start_prometheus()
        cls.background = cls.start(
            [BINARIES / "attention-load", "attend", "--server", cls.grpc, "--seconds", "600"]
        )
        # Rates need some scrapes.
        until(lambda: cls.query("count_over_time(attention_ready[1m]) > 5"))

    @classmethod
    def start(cls, command, **options):
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=options.pop("stdout", subprocess.DEVNULL),
            stderr=options.pop("stderr", subprocess.DEVNULL),
            **options,
        )
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        return process

    @classmethod
    def start_server(cls, folder, *flags, **options):
        """The addresses of its ports."""
        log = cls.folder / f"{folder.name}.log"
        ports = ["--grpc-port", "0", "--http-port", "0"]
        with open(log, "w") as out:
            cls.start([folder / "attention-server", *ports, *flags], stderr=out, **options)
        found = until(lambda: re.search(r"listening on ([^ ,]+), http://([^ ,]+)", log.read_text()))
        grpc, http = found.groups()
        until(lambda: get(f"http://{http}/v2/health/ready"))
        return grpc, http

    @classmethod
    def start_server_with_device(cls):
        """With an emulated device: its plugin lies beside the program, as a real one does."""
        emulated = BINARIES.parent / "emulated"
        folder = cls.folder / "with_device"
        folder.mkdir()
        shutil.copy(BINARIES / "attention-server", folder)
        shutil.copy(emulated / "libattention_cuda.so", folder)
        driver = {**os.environ, "LD_LIBRARY_PATH": str(emulated)}
        grpc, http = cls.start_server(folder, "--backend", "cuda", env=driver)
        cls.load("--seconds", "1", "--shape", "1,1,4,8", server=grpc)
        return grpc, http

    @classmethod
    def load(cls, *arguments, server=None):
        subprocess.run(
            [BINARIES / "attention-load", "attend", "--server", server or cls.grpc, *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    @classmethod
    def start_prometheus(cls):
        text = (MONITORING / "prometheus.yml").read_text()
        targets = f'{cls.http}", "{cls.http_of_devices}'
        text = text.replace("127.0.0.1:8002", targets).replace("15s", "500ms")
        # Whose Prometheus it is chooses the job's name: nothing may depend on it.
        text = text.replace("job_name: attention", "job_name: models")
        (cls.folder / "prometheus.yml").write_text(text)
        (cls.folder / "alerts.yml").write_text((MONITORING / "alerts.yml").read_text())
        log = cls.folder / "prometheus.log"
        with open(log, "w") as out:
            cls.start(
                [
                    "prometheus",
                    f"--config.file={cls.folder}/prometheus.yml",
                    f"--storage.tsdb.path={cls.folder}/data",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stderr=out,
            )
        found = until(lambda: re.search(r'Listening on" address=(\S+)', log.read_text()))
        cls.prometheus = f"http://{found.group(1)}"
        until(lambda: get(f"{cls.prometheus}/-/ready"))

    @classmethod
    def query(cls, expression):
        """The series that it gives now."""
        arguments = urllib.parse.urlencode({"query": expression})
        try:
            reply = get(f"{cls.prometheus}/api/v1/query?{arguments}")
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        return json.loads(reply)["data"]["result"]

    def exported(self):
        """The names of all series, of devices too."""
        pages = [get(f"http://{http}/metrics") for http in (self.http, self.http_of_devices)]
        lines = "".join(pages).splitlines()
        return {re.match(r"[a-z_]+", line).group() for line in lines if line[0] != "#"}

    def test_what_is_exported_is_as_prometheus_wants_it(self):
        check = subprocess.run(
            ["promtool", "check", "metrics"],
            input=get(f"http://{self.http}/metrics"),
            capture_output=True,
            text=True,
        )
        self.assertEqual((check.returncode, check.stdout + check.stderr), (0, ""))

    def test_configuration_and_rules_are_valid(self):
        for what in ("config", MONITORING / "prometheus.yml"), ("rules", MONITORING / "alerts.yml"):
            check = subprocess.run(["promtool", "check", *what], capture_output=True, text=True)
            self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_alerts_fire_when_they_should_and_not_otherwise(self):
        tests = Path(__file__).with_name("alerts_test.yml")
        check = subprocess.run(["promtool", "test", "rules", tests], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    def test_prometheus_reads_the_server(self):
        self.assertEqual([s["value"][1] for s in self.query('up{job="models"}')], ["1", "1"])

    def test_every_metric_of_the_dashboard_is_exported(self):
        exported = self.exported()
        for title, expression in expressions_of_dashboard():
            for name in OURS.findall(expression):
                self.assertIn(name, exported, title)

    def test_every_metric_of_the_alerts_is_exported(self):
        exported = self.exported()
        groups = json.loads(get(f"{self.prometheus}/api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self.assertGreater(len(rules), 5)
        for rule in rules:
            for name in OURS.findall(rule["query"]):
                self.assertIn(name, exported, rule["name"])

    def test_every_exported_metric_is_in_the_documentation(self):
        page = (MONITORING.parents[1] / "docs" / "metrics.md").read_text()
        for name in self.exported():
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            self.assertIn(f"`{family}`", page)

    def test_every_panel_shows_something_under_load(self):
        for title, expression in expressions_of_dashboard():
            expression = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
            with self.subTest(title):
                self.assertTrue(until(lambda e=expression: self.query(e), 10), expression)

    def test_no_rule_fails(self):
        def evaluated():
            groups = json.loads(get(f"{self.prometheus}/api/v1/rules"))["data"]["groups"]
            rules = [rule for group in groups for rule in group["rules"]]
            return all(rule["health"] != "unknown" for rule in rules) and rules

        for rule in until(evaluated):
            self.assertEqual(rule["health"], "ok", rule)


if __name__ == "__main__":
    unittest.main()
