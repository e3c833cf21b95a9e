"""Who the client trusts, and what it shows of itself."""

import asyncio
import codecs
import hashlib
import json
import os
import re
import subprocess

import grpc
import numpy as np
import pytest
from certificates import make_certificates, openssl
from failing_server import FailingServer
from pages import ROOT
from running_server import RunningServer

from attention_client import (
    AsyncClient,
    AttentionError,
    Client,
    InvalidArgumentError,
    Tls,
    UnauthenticatedError,
    UnavailableError,
)

ONES = [np.ones((2, 2), np.float32)] * 3
REQUEST = dict(zip(("query", "key", "value"), ONES, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def serve(folder, answer, ask=False):
    """A server with TLS; it asks its callers for a certificate, or does not."""
    key, certificate, ca = (
        (folder / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")
    )
    return FailingServer(
        answer,
        grpc.ssl_server_credentials(
            [(key, certificate)],
            root_certificates=ca if ask else None,
            require_client_auth=ask,
        ),
    )


def nothing(_, __):
    return b""


def test_a_server_is_trusted_that_the_authority_vouches_for(folder):
    with (
        serve(folder, nothing) as server,
        Client(server.target, tls=Tls(ca=folder / "ca.pem")) as client,
    ):
        assert client.attend(*ONES).output is None


def test_no_other_server_is_trusted(folder):
    with serve(folder, nothing) as server:
        for tls in (True, Tls(ca=folder / "caller.pem"), False):
            with (
                Client(server.target, tls=tls) as client,
                pytest.raises(UnavailableError),
            ):
                client.attend(*ONES)
        assert server.calls == 0


def test_a_file_is_no_tls():
    with pytest.raises(
        InvalidArgumentError, match=r"tls: 'ca\.pem' \(expected True, False or Tls\("
    ):
        Client("127.0.0.1:1", tls="ca.pem")


def test_none_is_no_tls():
    with (
        FailingServer(nothing) as server,
        Client(server.target, tls=None) as client,
    ):
        assert client.attend(*ONES).output is None


def test_a_client_shows_its_certificate(folder):
    shown = []

    def answer(_, context):
        shown.append(context.auth_context()["x509_common_name"])
        return b""

    tls = Tls(
        ca=folder / "ca.pem",
        certificate=folder / "caller.pem",
        key=folder / "caller.key",
    )
    with serve(folder, answer, ask=True) as server:
        with Client(server.target, tls=tls) as client:
            client.attend(*ONES)
        with (
            Client(server.target, tls=Tls(ca=folder / "ca.pem")) as client,
            pytest.raises(UnavailableError),
        ):
            client.attend(*ONES)
    assert shown == [[b"caller"]]


def test_both_clients_send_their_token(folder):
    sent = []

    def answer(_, context):
        sent.append(dict(context.invocation_metadata())["authorization"])
        return b""

    async def call(target):
        async with AsyncClient(target, tls=tls, token="s3cret") as client:
            await client.attend(*ONES)

    tls = Tls(ca=folder / "ca.pem")
    with serve(folder, answer) as server:
        with Client(server.target, tls=tls, token="s3cret") as client:
            client.attend(*ONES)
        asyncio.run(call(server.target))
    assert sent == ["Bearer s3cret"] * 2


def test_a_call_sends_its_metadata_beside_the_token():
    sent = []

    def answer(_, context):
        given = dict(context.invocation_metadata())
        sent.append((given["traceparent"], given["authorization"]))
        return b""

    async def call(target):
        async with AsyncClient(target, token="s3cret") as client:
            await client.attend(*ONES, metadata={"traceparent": "00-b"})
            with pytest.raises(AttentionError):  # a reply that nobody asked for
                async for _ in client.attend_many([REQUEST], metadata=stream):
                    pass

    stream = {"traceparent": "00-c"}
    with FailingServer(answer) as server:
        with Client(server.target, token="s3cret") as client:
            client.attend(*ONES, metadata={"traceparent": "00-a"})
            with pytest.raises(AttentionError):
                list(client.attend_many([REQUEST], metadata=stream))
        asyncio.run(call(server.target))
    assert [trace for trace, _ in sent] == ["00-a", "00-c", "00-b", "00-c"]
    assert {token for _, token in sent} == {"Bearer s3cret"}


def test_a_token_does_not_cross_a_network_in_the_clear():
    with pytest.raises(ValueError, match="token: without tls"):
        Client("example.org:8001", token="s3cret")
    Client("127.0.0.1:8001", token="s3cret").close()
    Client("example.org:8001", token="s3cret", tls=True).close()


@pytest.mark.parametrize(
    "target",
    [
        "127.evil.example:8001",
        "127.0.0.1.nip.io:8001",
        "ipv4:127.0.0.1:8001,10.0.0.7:8001",
        "ipv4:127.0.0.1:8001%2C10.0.0.7:8001",
    ],
)
def test_what_only_begins_as_this_machine_does_gets_no_token(target):
    with pytest.raises(ValueError, match="token: without tls"):
        Client(target, token="s3cret")


def test_no_proxy_of_the_environment_sees_what_stays_on_this_machine(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nobody listens there
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        FailingServer(lambda *_: b"") as server,
        Client(server.target, token="abc") as client,
    ):
        client.attend(*ONES)


def test_settings_that_exclude_each_other_are_refused(folder):
    with pytest.raises(ValueError, match="expected both of them"):
        Client("127.0.0.1:1", tls=Tls(certificate=folder / "caller.pem"))
    with pytest.raises(ValueError, match="credentials: given beside tls"):
        Client("127.0.0.1:1", tls=True, credentials=grpc.ssl_channel_credentials())
    assert "caller.key" not in repr(Tls(key=folder / "caller.key"))


@pytest.fixture(scope="module")
def files(folder):
    """The folder of the certificates, with files that few would think of."""
    (folder / "empty").write_text("")
    openssl(
        folder,
        *("pkcs8", "-topk8", "-in", "caller.key", "-passout", "pass:word"),
        *("-out", "locked.key"),
    )
    openssl(
        folder,
        *("req", "-x509", "-newkey", "rsa:1024", "-nodes", "-subj", "/CN=weak"),
        *("-keyout", "weak.key", "-out", "weak.pem"),
    )
    openssl(folder, "x509", "-in", "ca.pem", "-trustout", "-out", "trusted.pem")
    authority = (folder / "ca.pem").read_text()
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    (folder / "broken behind.pem").write_text(authority + broken)
    for name in ("caller.pem", "caller.key"):
        marked = codecs.BOM_UTF8 + (folder / name).read_bytes()
        (folder / f"marked {name}").write_bytes(marked)
    (folder / "of an author.pem").write_text("Autorität\n" + authority, "utf-8")
    return folder


NO_CERTIFICATE = "holds no certificate (expected PEM)"
NO_KEY = "holds no private key (expected PEM, without a passphrase)"
MARKED = "begins with a byte-order mark (expected PEM without one)"
ANOTHER = "is not the key of the certificate in 'caller.pem'"


@pytest.mark.parametrize(
    ("ca", "certificate", "key", "says"),
    [
        ("empty", None, None, f"ca: 'empty' {NO_CERTIFICATE}"),
        ("ca.key", None, None, f"ca: 'ca.key' {NO_CERTIFICATE}"),
        (None, "empty", "caller.key", f"certificate: 'empty' {NO_CERTIFICATE}"),
        (None, "ca.key", "ca.key", f"certificate: 'ca.key' {NO_CERTIFICATE}"),
        (None, "caller.pem", "empty", f"key: 'empty' {NO_KEY}"),
        (None, "caller.pem", "caller.pem", f"key: 'caller.pem' {NO_KEY}"),
        (None, "caller.pem", "locked.key", f"key: 'locked.key' {NO_KEY}"),
        (None, "caller.pem", "server.key", f"key: 'server.key' {ANOTHER}"),
        (None, "caller.pem", "weak.key", f"key: 'weak.key' {ANOTHER}"),
        ("marked caller.pem", None, None, f"ca: 'marked caller.pem' {MARKED}"),
        (
            None,
            "marked caller.pem",
            "caller.key",
            f"certificate: 'marked caller.pem' {MARKED}",
        ),
        (
            None,
            "caller.pem",
            "marked caller.key",
            f"key: 'marked caller.key' {MARKED}",
        ),
    ],
)
def test_a_file_that_grpc_cannot_use_is_named(
    files, monkeypatch, ca, certificate, key, says
):
    monkeypatch.chdir(files)
    with pytest.raises(InvalidArgumentError) as caught:
        Client("127.0.0.1:1", tls=Tls(ca, certificate, key))
    assert str(caught.value) == says


@pytest.mark.parametrize("ca", ["trusted.pem", "broken behind.pem", "of an author.pem"])
def test_what_grpc_can_use_is_left_to_it(files, ca):
    with (
        serve(files, nothing) as server,
        Client(server.target, tls=Tls(ca=files / ca)) as client,
    ):
        assert client.attend(*ONES).output is None


def test_a_key_that_grpc_may_find_weak_is_left_to_it(files):
    tls = Tls(certificate=files / "weak.pem", key=files / "weak.key")
    Client("127.0.0.1:1", tls=tls).close()


def test_a_key_may_come_by_a_pipe(folder):
    with subprocess.Popen(
        ["cat", folder / "caller.key"], stdout=subprocess.PIPE
    ) as cat:
        key = f"/dev/fd/{cat.stdout.fileno()}"
        tls = Tls(certificate=folder / "caller.pem", key=key)
        Client("127.0.0.1:1", tls=tls).close()


@pytest.fixture(scope="module")
def guarded(folder, tmp_path_factory):
    """attention-server itself, with TLS, for one caller who has a token."""
    known = {"name": "me", "tokens_sha256": [hashlib.sha256(b"secret").hexdigest()]}
    (folder / "callers.json").write_text(json.dumps({"callers": [known]}))
    with pytest.MonkeyPatch.context() as patch:
        # What RunningServer starts; to a client it would be an address.
        patch.setenv("ATTENTION_SERVER", os.environ["ATTENTION_SERVER_BINARY"])
        server = RunningServer(
            tmp_path_factory.mktemp("server") / "log",
            f"--tls-certificate={folder / 'server.pem'}",
            f"--tls-key={folder / 'server.key'}",
            f"--callers-file={folder / 'callers.json'}",
        )
    yield server
    assert server.stop() == 0


def test_the_server_itself_takes_tls_and_a_token(folder, guarded):
    tls = Tls(ca=folder / "ca.pem")
    with Client(guarded.address, tls=tls, token="secret") as client:
        assert client.attend(*ONES).output.shape == (2, 2)


def test_the_server_itself_refuses_another_token(folder, guarded):
    tls = Tls(ca=folder / "ca.pem")
    with (
        Client(guarded.address, tls=tls, token="other") as client,
        pytest.raises(UnauthenticatedError) as failed,
    ):
        client.attend(*ONES)
    assert isinstance(failed.value, PermissionError)
    assert failed.value.code == grpc.StatusCode.UNAUTHENTICATED


def test_a_callers_file_as_the_page_shows_it_lets_nobody_in(tmp_path, monkeypatch):
    """Its token is to be filled in: a hash of some word would be one that all know."""
    monkeypatch.setenv("ATTENTION_SERVER", os.environ["ATTENTION_SERVER_BINARY"])
    page = (ROOT / "docs/operations/access.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'```json\n(\{"callers".*?)```', page, re.DOTALL)
    file = tmp_path / "callers.json"
    file.write_text(shown)
    with pytest.raises(RuntimeError, match=r"tokens_sha256.*expected"):
        RunningServer(tmp_path / "log", "--callers-file", file)
    (token,) = json.loads(shown)["callers"][0]["tokens_sha256"]
    file.write_text(shown.replace(token, hashlib.sha256(b"a token").hexdigest()))
    assert RunningServer(tmp_path / "log", "--callers-file", file).stop() == 0
