"""Keys and values that stay: callers who fill the store, and who ask for what is not theirs."""

import hashlib
import json
import re

import grpc
import numpy as np
import pytest
from grpc import StatusCode
from sequence_calls import MIB, REFUSED, caller, code_of, rows
from sequences import Sequences, form


@pytest.fixture
def callers_file(tmp_path):
    """Of greedy, who may use files, and of modest; their tokens are their names."""
    file = tmp_path / "callers.json"
    callers = [
        {
            "name": name,
            "tokens_sha256": [hashlib.sha256(name.encode()).hexdigest()],
            "may": rights,
        }
        for name, rights in (("greedy", ["sequence_files"]), ("modest", []))
    ]
    file.write_text(json.dumps({"callers": callers}))
    return str(file)


@pytest.fixture
def folder(tmp_path):
    """For files of sequences."""
    made = tmp_path / "files"
    made.mkdir()
    return made


def fill(sequences, name, width):
    """Until there is no room; what the server says then."""
    for _ in range(10_000):
        code, details = code_of(sequences.append, name, *rows(64, width))
        if code != StatusCode.OK:
            assert code == StatusCode.RESOURCE_EXHAUSTED, details
            return details
    raise AssertionError("the store has no end")


# ---- a caller that fills the store


def test_a_full_store_says_who_holds_it(start, callers_file):
    server = start("--resident-memory-limit", "8MiB", "--callers-file", callers_file)
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        modest.create("small")
        modest.append("small", *rows(3))
        greedy.create("large", form=form(width=256))
        said = fill(greedy, "large", 256)
        held, limit = map(int, re.search(r"hold (\d+) of (\d+) bytes", said).groups())
        assert 7 * MIB < held <= limit == 8 * MIB
        assert re.search(r"'greedy' \d{7}", said), said
        # The same to others, who keep what they have, and can go on in its pages.
        new = form(layers=4096)
        code, said = code_of(modest.create, "more", form=new)
        assert code == StatusCode.RESOURCE_EXHAUSTED and "'greedy'" in said
        assert modest.append("small", *rows(1)).length == 4
        assert modest.attend(["small"], np.ones((1, 4))).output.shape == [1, 4]
        # Nothing is left of what there was no room for.
        assert code_of(modest.describe, "more")[0] == StatusCode.NOT_FOUND
        lengths = list(greedy.describe("large").lengths)
        assert code_of(greedy.append, "large", *rows(6400, 256))[0] != StatusCode.OK
        assert list(greedy.describe("large").lengths) == lengths
        assert greedy.delete("large") == 1
        modest.create("more", form=new)
        assert server.most_memory() < 256 * MIB


def test_eviction_takes_from_who_holds_most(start, callers_file):
    server = start(
        "--resident-memory-limit", "8MiB", "--resident-evict", "--callers-file", callers_file
    )
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        modest.create("small")
        modest.append("small", *rows(3))
        for n in range(40):  # of 512 KiB each
            greedy.create(f"large{n}", form=form(width=256))
            greedy.append(f"large{n}", *rows(256, 256))
        # His own went; the other's, which was not used for longest, is there.
        code, said = code_of(greedy.describe, "large0")
        assert code == StatusCode.NOT_FOUND and "evicted" in said
        assert greedy.describe("large39").lengths == [256]
        modest.create("half", form=form(width=256))
        for _ in range(24):
            modest.append("half", *rows(64, 256))
        assert modest.describe("small").lengths == [3]
        assert modest.describe("half").lengths == [24 * 64]
        # What cannot fit at all drives out nobody.
        before = greedy.all_names()
        greedy.create("too-large", form=form(width=4096))
        kept = set(before) & set(greedy.all_names())
        code, _ = code_of(greedy.append, "too-large", *rows(512, 4096))
        assert code == StatusCode.RESOURCE_EXHAUSTED
        assert kept <= set(greedy.all_names())


def test_sequences_without_keys_have_an_end_too(start):
    server = start("--resident-memory-limit", "8MiB")
    with server.channel() as channel:
        sequences = Sequences(channel)
        made = 0
        code = StatusCode.OK
        while code == StatusCode.OK:
            code, said = code_of(sequences.create, *[""] * 256)
            made += code == StatusCode.OK
            assert made < 200, "51,200 sequences in 8 MiB"
        assert code == StatusCode.RESOURCE_EXHAUSTED, said
        assert len(sequences.all_names()) == made * 256
        assert server.memory() < 256 * MIB


# ---- calls that are larger than what they ask for


@pytest.mark.parametrize("method", ["Create", "Delete", "Describe", "Import"])
def test_a_call_without_tensors_is_not_read_where_it_is_large(start, tmp_path, method):
    server = start("--memory-limit", "512MiB", "--resident-folder", str(tmp_path))
    with server.channel() as channel:
        call = channel.unary_unary(f"/attention.v1.KeyValueService/{method}")
        before = server.memory()
        # Empty elements: of Create each would be an object of a hundred bytes.
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\x0a\x00" * (16 << 20))
        assert caught.value.code() == StatusCode.RESOURCE_EXHAUSTED
        assert "33554432 bytes" in caught.value.details()
        assert server.most_memory() - before < 256 * MIB
        Sequences(channel).create("mine")


# ---- names of others


def test_names_of_others_are_not_there(start, folder, callers_file):
    server = start("--callers-file", callers_file, "--resident-folder", str(folder))
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        (secret,) = modest.create("", label="secret")
        modest.create("chosen")
        for name in (secret, "chosen"):
            modest.append(name, *rows(3))
        for name in (secret, "chosen"):
            for call, arguments in (
                (greedy.append, rows(1)),
                (greedy.truncate, (0,)),
                (greedy.fork, ()),
                (greedy.describe, ()),
                (greedy.export_to, ("file",)),
            ):
                code, said = code_of(call, name, *arguments)
                assert (code, call) == (StatusCode.NOT_FOUND, call)
                assert "modest" not in said and "secret" not in said
            code, _ = code_of(greedy.attend, [name], np.ones((1, 4)))
            assert code == StatusCode.NOT_FOUND
            code, _ = code_of(greedy.attend, [name], np.ones((1, 4)), rows(1))
            assert code == StatusCode.NOT_FOUND
            assert greedy.delete(name) == 0
        assert greedy.all_names() == []
        assert code_of(Sequences(channel).all_names)[0] == StatusCode.UNAUTHENTICATED
        # A name of another is free, and is another sequence; a page of a list leads to
        # nobody else's either.
        greedy.create("chosen", secret)
        token = modest.list(page_size=1).next_page_token
        assert len(greedy.list(page_token=token).sequences) <= 2
        assert greedy.describe("chosen").lengths == [0]
        assert greedy.delete("chosen", secret) == 2
        for name in (secret, "chosen"):
            assert modest.describe(name).lengths == [3]


# ---- files


def test_files_are_for_those_who_may(start, folder, callers_file):
    server = start("--callers-file", callers_file, "--resident-folder", str(folder))
    with server.channel() as channel:
        greedy, modest = caller(channel, "greedy"), caller(channel, "modest")
        for one in (greedy, modest):
            one.create("mine")
            one.append("mine", *rows(3))
        greedy.export_to("mine", "secret")
        exported = (folder / "secret").read_bytes()
        for call, arguments in (
            (modest.import_from, ("secret", "stolen")),
            (modest.export_to, ("mine", "secret")),
        ):
            code, said = code_of(call, *arguments)
            assert code == StatusCode.PERMISSION_DENIED, said
            assert "modest" in said and "sequence_files" in said
        assert (folder / "secret").read_bytes() == exported
        greedy.import_from("secret", "again")


def test_names_of_files_may_be_as_long_as_the_system_takes(start, folder):
    server = start("--resident-folder", str(folder))
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("mine")
        sequences.append("mine", *rows(3))
        for length in (1, 218, 255):
            assert sequences.export_to("mine", "a" * length).bytes > 0
            sequences.import_from("a" * length, f"from-{length}")
        assert sorted(len(path.name) for path in folder.iterdir()) == [1, 218, 255]


def test_paths_that_leave_the_folder(start, tmp_path, folder):
    (folder / "folder").mkdir()
    outside = tmp_path / "outside.safetensors"
    server = start("--resident-folder", str(folder))
    with server.channel() as channel:
        sequences = Sequences(channel)
        sequences.create("mine")
        sequences.append("mine", *rows(3))
        assert sequences.export_to("mine", "good").bytes > 0
        outside.write_bytes((folder / "good").read_bytes())
        for file in (
            "../outside.safetensors",
            str(outside),
            "./good",
            "folder/file",
            "..",
            ".",
            "",
            ".hidden",
            "good\0",
            "\0",
            "a\\b",
            "a" * 256,
            "%2e%2e%2foutside.safetensors",
            "~",
            "a\nb",
        ):
            for call in (sequences.export_to, sequences.import_from):
                arguments = ("mine", file) if call == sequences.export_to else (file, "new")
                code, said = code_of(call, *arguments)
                assert code == StatusCode.INVALID_ARGUMENT, (file, said)
                assert str(tmp_path) not in said.replace(file or "-", "")
        # A folder is no file, and a file that is cut off is no sequence.
        assert code_of(sequences.export_to, "mine", "folder")[0] != StatusCode.OK
        assert code_of(sequences.import_from, "folder", "new")[0] != StatusCode.OK
        good = (folder / "good").read_bytes()
        for length in (0, 1, 7, 8, 40, len(good) - 1):
            (folder / "cut").write_bytes(good[:length])
            code, said = code_of(sequences.import_from, "cut", "new")
            assert code in REFUSED, said
        assert sequences.all_names() == ["mine"]
        assert outside.read_bytes() == good
        assert {path.name for path in folder.iterdir()} == {"good", "folder", "cut"}
        sequences.import_from("good", "new")
        assert list(sequences.describe("new").lengths) == [3]
