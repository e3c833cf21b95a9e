"""What docker/Dockerfile* copy and run, against what .dockerignore lets through."""

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = [
    line
    for line in (ROOT / ".dockerignore").read_text().splitlines()
    if line and not line.startswith("#")
]
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
FILES = LISTED.stdout.splitlines()
SCRIPT = re.compile(r"\b(?:deploy|docker)/[\w-]+")


def is_sent(file):
    """Whether a builder gets this file: the last rule that names it or a folder above decides."""
    sent = True
    for rule in RULES:
        pattern = rule.removeprefix("!")
        if any(fnmatch.fnmatch(str(path), pattern) for path in [Path(file), *Path(file).parents]):
            sent = rule.startswith("!")
    return sent


def instructions(dockerfile):
    """Each with its words; lines that go on are one."""
    text = re.sub(r"^#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [line.split() for line in lines if line.strip()]


def copied(dockerfile):
    """What COPY takes from the builder's context."""
    return [
        source
        for name, *words in instructions(dockerfile)
        if name == "COPY" and not words[0].startswith("--from")
        for source in words[:-1]
    ]


def used(dockerfile):
    """Files of deploy/ and docker/ that RUN calls, and those that these call and read."""
    commands = [" ".join(words) for name, *words in instructions(dockerfile) if name == "RUN"]
    found = set()
    new = set(SCRIPT.findall(" ".join(commands)))
    while new:
        found |= new
        texts = [(ROOT / file).read_text() for file in new]
        code = [line for text in texts for line in text.splitlines() if line.strip()[:1] != "#"]
        new = {file for file in SCRIPT.findall("\n".join(code)) if (ROOT / file).is_file()} - found
    return found


each_dockerfile = pytest.mark.parametrize(
    "dockerfile", sorted((ROOT / "docker").glob("Dockerfile*")), ids=lambda path: path.name
)


@each_dockerfile
def test_the_builder_gets_all_that_is_copied(dockerfile):
    assert len(copied(dockerfile)) > 5
    for source in copied(dockerfile):
        files = [file for file in FILES if file == source or file.startswith(f"{source}/")]
        assert files, f"COPY {source}: no such file"
        assert [file for file in files if not is_sent(file)] == []


@each_dockerfile
def test_all_that_is_run_was_copied(dockerfile):
    assert "deploy/setup" in used(dockerfile)
    assert used(dockerfile) - set(copied(dockerfile)) == set()
