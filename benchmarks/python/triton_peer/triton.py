"""A Triton server and its load generator, unpacked from their wheels and run."""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path


_HERE = Path(__file__).parent

def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class TritonServer:
    """Serves a model of models/. Ready when it is made; `address` is its gRPC port.
    `folder` has the environment that benchmarks/environment.sh makes; `environment` is
    added to this process's."""

    def __init__(self, folder: Path, model: str, environment: dict[str, str] | None = None):
        folder = folder.resolve()
        packages = next((folder / "venv" / "lib").glob("python3.*")) / "site-packages"
        home = packages / "pytriton" / "tritonserver"
        repository = folder / "repositories" / model
        self._write_model(repository, model, packages)
        self._write_backend(home, packages, folder / "backends" / "python")
        http, grpc, metrics = _free_ports(3)
        self.address = f"127.0.0.1:{grpc}"
        flags = [f"--{name}-port={port}" for name, port in
                 (("http", http), ("grpc", grpc), ("metrics", metrics))]
        flags += [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
        self.log = folder / "triton.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    str(home / "bin" / "tritonserver"),
                    f"--model-repository={repository}",
                    f"--backend-directory={folder / 'backends'}",
                    "--backend-config=python,shm-default-byte-size=67108864",
                    *flags,
                ],
                env=os.environ
                | {"PYTHONPATH": str(packages), "PYTHONHOME": sys.base_prefix,
                   "LD_LIBRARY_PATH": str(packages / "nvidia_pytriton.libs")}
                | (environment or {}),
                stdout=log,
                stderr=log,
            )
        self._wait(f"http://127.0.0.1:{http}/v2/health/ready")

    @staticmethod
    def _write_model(repository: Path, model: str, packages: Path) -> None:
        version = repository / model / "1"
        version.mkdir(parents=True, exist_ok=True)
        source = _HERE / "models" / model
        shutil.copy(source / "config.pbtxt", repository / model)
        # The backend's interpreter looks in no environment of ours by itself.
        path = f"import sys\n\nsys.path.insert(0, {str(packages)!r})\n"
        (version / "model.py").write_text(path + (source / "model.py").read_text())

    @staticmethod
    def _write_backend(home: Path, packages: Path, backend: Path) -> None:
        stubs = home / "python_backend_stubs" / packages.parent.name.removeprefix("python")
        for source in (home / "backends" / "python", stubs):
            shutil.copytree(source, backend, dirs_exist_ok=True)

    def _wait(self, url: str) -> None:
        for _ in range(600):
            try:
                urllib.request.urlopen(url, timeout=5).close()
                return
            except (urllib.error.URLError, ConnectionError):
                if self._process.poll() is not None:
                    break
                time.sleep(0.1)
        self.__exit__()
        raise RuntimeError(f"Triton does not become ready; its log is {self.log}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait()


@dataclass(frozen=True)
class Load:
    """What a server made of a load."""

    calls_per_second: float
    server_ms: float  # of a call, by the server's own statistics


def _write_normal_numbers(shape: tuple[int, ...], file: Path) -> None:
    """The same numbers in the load generator's form, whoever asks."""
    import numpy  # Only now: --help does without it.

    generator = numpy.random.default_rng(1)
    tensors = {}
    for name in ("query", "key", "value"):
        numbers = generator.standard_normal(shape, dtype=numpy.float32)
        encoded = base64.b64encode(numbers.tobytes()).decode()
        tensors[name] = {"content": {"b64": encoded}, "shape": list(shape)}
    file.write_text(json.dumps({"data": [tensors]}))


class LoadGenerator:
    """perf_analyzer."""

    def __init__(self, folder: Path):
        folder = folder.resolve()
        self._folder = folder
        self._program = folder / "perf_analyzer"
        members = {
            "tritonclient-*": ("perf_analyzer", self._program),
            "nvidia_cuda_runtime_cu12-*": ("libcudart.so.12", folder / "libcudart.so.12"),
        }
        for pattern, (name, to) in members.items():
            wheel = next((folder / "wheels").glob(pattern))
            with zipfile.ZipFile(wheel) as archive:
                member = next(one for one in archive.namelist() if one.endswith("/" + name))
                to.write_bytes(archive.read(member))
        self._program.chmod(0o755)
        self._libraries = folder

    def _numbers(self, case) -> str:
        if case.numbers != "normal":
            return case.numbers
        file = self._folder / f"normal-{'x'.join(map(str, case.shape))}.json"
        if not file.exists():
            _write_normal_numbers(case.shape, file)
        return str(file)

    def run(self, address: str, model: str, case, seconds: float) -> Load:
        batch, heads, length, width = case.shape
        shape = f"{batch},{heads},{length},{width}"
        command = [str(self._program), "-m", model, "-u", address, "-i", "grpc"]
        command += ["--input-data", self._numbers(case)]
        for name in ("query", "key", "value"):
            command += ["--shape", f"{name}:{shape}"]
        command += ["--concurrency-range", str(case.in_flight)]
        command += ["--measurement-interval", str(int(1000 * seconds))]
        # One window: rounds and their median are the caller's.
        command += ["--stability-percentage", "999", "--max-trials", "3"]
        if case.shared_memory:
            command += ["--shared-memory", "system"]
            command += ["--output-shared-memory-size", str(4 * batch * heads * length * width)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"LD_LIBRARY_PATH": str(self._libraries)},
        )
        rate = re.search(r"Throughput: ([\d.]+) infer/sec", done.stdout)
        server = re.search(r"Avg request latency: (\d+) usec", done.stdout)
        if done.returncode != 0 or not rate or not server:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return Load(float(rate[1]), int(server[1]) / 1000)
