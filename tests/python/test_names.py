"""Names of the package are those of the API: nothing missing, nothing more."""

import dataclasses
import inspect
import subprocess
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2

import attention_client
from attention_client import _channel, _messages, _options, _request, errors, info
from attention_client._wire import DATATYPES

ROOT = Path(__file__).resolve().parents[2]
REQUEST = _messages.message("attention.v1.AttendRequest").DESCRIPTOR


def field_names(message):
    return {
        f.name for f in _messages.message(f"attention.v1.{message}").DESCRIPTOR.fields
    }


def test_the_package_has_the_api_of_the_proto_files(tmp_path):
    made = tmp_path / "protocol.binpb"
    subprocess.run([ROOT / "client/python/update-protocol", made], check=True)
    parse = descriptor_pb2.FileDescriptorSet.FromString
    packaged = Path(attention_client.__file__).with_name("protocol.binpb")
    assert parse(packaged.read_bytes()) == parse(made.read_bytes()), (
        "run client/python/update-protocol"
    )


def test_what_pip_left_beside_the_source_is_not_built(tmp_path):
    package = tmp_path / "client/python"
    for folder in (
        "src/attention_client",
        "src/attention_client.egg-info",
        "build/lib",
    ):
        (package / folder).mkdir(parents=True)
    script = f". {ROOT}/deploy/lib.sh; python_source client/python copy"
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True)
    copied = (path.relative_to(tmp_path) for path in tmp_path.glob("copy/**/*"))
    assert sorted(map(str, copied)) == ["copy/src", "copy/src/attention_client"]


@pytest.mark.parametrize("flag, code", [("--help", 0), ("-h", 0), ("--bogus", 2)])
def test_the_script_of_the_wheels_takes_no_flag_for_a_folder(flag, code):
    script = ROOT / "client/python-server/make-wheels"
    said = subprocess.run([script, flag], capture_output=True, text=True, timeout=60)
    assert said.returncode == code
    assert "Usage: client/python-server/make-wheels" in said.stdout + said.stderr


def test_every_field_of_a_request_has_an_option():
    of_scoring = {f.name for f in REQUEST.oneofs_by_name["scoring"].fields}
    own_names = {"window_left", "window_right", *_options.RENAMED.values()}
    options = set(_options.Options.__annotations__) - set(_request.SCALES)
    assert field_names("AttendRequest") - of_scoring - own_names - {
        "query",
        "key_value",
        "sequences",
    } == (options - {"window", "scale", "scoring", *_options.RENAMED})
    assert field_names("KeyValueTensors") == {"key", "value", *_request.SCALES}


def test_every_option_is_sent_by_its_kind():
    tensor = {
        f.name for f in REQUEST.fields if f.message_type and not f.containing_oneof
    }
    assert tensor - {"query"} == set(_request.TENSORS)
    sent = {*_request.TENSORS, *_options.SCALARS, *_options.RENAMED, *_options.CHOICES}
    assert sent | {"window", "scale", "scoring", *_request.SCALES} == set(
        _options.Options.__annotations__
    )
    assert set(_options.RENAMED.values()) <= field_names("AttendRequest")


def test_every_scoring_function_has_its_fields():
    of_api = {f.name: f.message_type for f in REQUEST.oneofs_by_name["scoring"].fields}
    assert set(_request.SCORINGS.values()) == set(of_api)
    for kind, name in _request.SCORINGS.items():
        fields = [field.name for field in dataclasses.fields(kind)]
        assert fields == [field.name for field in of_api[name].fields]


def test_every_field_of_a_reply_is_in_the_result():
    fields = {field.name for field in dataclasses.fields(attention_client.Result)}
    assert fields == field_names("AttendResponse")


def test_every_fact_of_the_server_is_in_its_info():
    for kind, message in (
        (info.ServerInfo, "GetServerInfoResponse"),
        (info.Backend, "Backend"),
        (info.BackendCost, "BackendCost"),
        (info.UnusedBackend, "UnusedBackend"),
        (info.Limits, "Limits"),
        (info.Device, "Device"),
        (info.SequenceStore, "SequenceStore"),
        (info.SequenceForm, "SequenceForm"),
        (info.SequenceDescription, "SequenceDescription"),
    ):
        assert {f.name for f in dataclasses.fields(kind)} == field_names(message)


def test_the_cost_of_a_backend_is_there_where_it_was_measured():
    message = _messages.message("attention.v1.GetServerInfoResponse")()
    message.backends.add(name="cpu")
    message.backends.add().cost.of_byte = 0.5
    plain, measured = info.ServerInfo.of(message).backends
    assert plain.cost is None
    assert measured.cost == info.BackendCost(0, 0, 0.5)


def test_every_call_on_keys_has_a_method():
    pool = REQUEST.file.pool
    service = pool.FindServiceByName("attention.v1.KeyValueService")
    called = {path.rpartition("/")[2] for path in _channel.ON_KEYS}
    assert called == {method.name for method in service.methods}
    # Those that are of no sequence are the client's.
    of_clients = {
        "Create": "sequence",
        "List": "sequences",
        "Import": "import_sequence",
    }
    for name in called:
        if name in of_clients:
            assert hasattr(attention_client.Client, of_clients[name])
        else:
            assert hasattr(attention_client.Sequence, name.lower())


def test_both_clients_have_the_same_calls():
    for kind, twin in (
        (attention_client.Client, attention_client.AsyncClient),
        (attention_client.Sequence, attention_client.AsyncSequence),
    ):
        names, of_twin = (
            {
                name
                for name, found in inspect.getmembers(one, callable)
                if not name.startswith("_")
            }
            for one in (kind, twin)
        )
        assert names == of_twin
        for name in names - {"attend_many"}:  # which takes more kinds of requests
            arguments, of_twin = (
                str([*inspect.signature(getattr(one, name)).parameters.values()])
                for one in (kind, twin)
            )
            assert arguments == of_twin.replace("Async", ""), name


def test_every_datatype_has_an_array_type():
    numbers = set(_messages.enum("attention.v1.DataType").values())
    assert set(DATATYPES.values()) == numbers - {0}


def test_every_documented_status_code_has_an_exception():
    documented = (
        (ROOT / "proto/attention/v1/attention.proto").read_text().split("syntax")[0]
    )
    codes = {code for code in grpc.StatusCode if code.name in documented}
    assert len(codes) >= 7
    assert set(errors._CLASSES) == codes


def test_the_docstring_of_attend_names_every_option():
    text = attention_client.Client.attend.__doc__
    listed = text.split("Options:")[1].split(";")[0]
    names = {name.strip() for name in listed.split(",")}
    assert names == set(_options.Options.__annotations__)
