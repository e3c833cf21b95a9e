"""What tritonclient asks beside inference."""

import json

import pytest
from model_folders import add_model
from tensors import to_inputs
from tritonclient.utils import InferenceServerException

SDPA = "scaled_dot_product_attention"
BUILT_IN = [
    "additive_attention",
    "bilinear_attention",
    "gaussian_attention",
    SDPA,
]


def code_of(call, *arguments, **options):
    with pytest.raises(InferenceServerException) as raised:
        call(*arguments, **options)
    return raised.value.status().removeprefix("StatusCode.")


def test_liveness_and_readiness(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready(SDPA) and client.is_model_ready(SDPA, "1")
    assert client.is_model_ready("trained_additive")
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready("broken")


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata.name == "attention-server"
    extensions = {"statistics", "system_shared_memory", "model_repository"}
    assert extensions <= set(metadata.extensions)


@pytest.mark.parametrize(
    "model, inputs",
    [
        (SDPA, ["query", "key", "value"]),
        ("additive_attention", ["query", "key", "value", "w_q", "w_k", "w_v"]),
        ("bilinear_attention", ["query", "key", "value", "m"]),
        ("trained_linear", ["query", "key", "value"]),
    ],
)
def test_metadata_and_configuration_agree(client, model, inputs):
    metadata = client.get_model_metadata(model)
    assert (metadata.name, list(metadata.versions)) == (model, ["1"])
    assert [i.name for i in metadata.inputs] == inputs
    assert [o.name for o in metadata.outputs] == ["output"]
    config = client.get_model_config(model).config
    assert [i.name for i in config.input] == inputs
    assert [list(i.dims) for i in config.input] == [
        list(i.shape) for i in metadata.inputs
    ]
    assert [o.name for o in config.output] == ["output"]
    assert config.max_batch_size == 0


def test_unknown_models_have_no_description(client):
    for call in (
        client.get_model_metadata,
        client.get_model_config,
        client.get_inference_statistics,
        client.get_trace_settings,
    ):
        assert code_of(call, "nobody") == "NOT_FOUND"


def statistics_of(client, model):
    return client.get_inference_statistics(model).model_stats[0]


@pytest.mark.parametrize("model", [SDPA, "trained_additive"])
def test_statistics_grow_honestly(client, problem, model):
    before = statistics_of(client, model)
    for _ in range(3):
        client.infer(model, to_inputs(problem.tensors))
    code_of(client.infer, model, [])
    after = statistics_of(client, model)
    assert after.version == "1"
    assert after.inference_count - before.inference_count == 3 * 2  # batch entries
    assert after.execution_count - before.execution_count == 3
    assert after.last_inference > before.last_inference - 1
    for part in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        old = getattr(before.inference_stats, part)
        new = getattr(after.inference_stats, part)
        assert new.count - old.count == 3, part
        assert new.ns > old.ns, part
    failed = after.inference_stats.fail.count - before.inference_stats.fail.count
    assert failed == 1


def test_statistics_of_every_model(client):
    stats = client.get_inference_statistics().model_stats
    assert set(BUILT_IN) < {model.name for model in stats}


def index_of(client):
    models = client.get_model_repository_index().models
    return {model.name: (model.state, model.reason) for model in models}


def test_the_index_has_every_model_and_why_one_is_missing(client):
    index = index_of(client)
    for model in [*BUILT_IN, "trained_additive", "trained_bilinear"]:
        assert index[model] == ("READY", "")
    state, reason = index["broken"]
    assert state == "UNAVAILABLE"
    assert "config.json: scoring: \"cosine\"" in reason and "/tmp" not in reason


def test_models_are_loaded_and_unloaded(client, problem, repository):
    inputs = to_inputs(problem.tensors)
    add_model(repository, "later", {"scoring": "gaussian"})
    assert index_of(client)["later"] == ("UNAVAILABLE", "not loaded")
    assert code_of(client.infer, "later", inputs) == "NOT_FOUND"

    client.load_model("later")
    assert client.is_model_ready("later")
    wide = client.infer("later", inputs).as_numpy("output")

    add_model(repository, "later", {"scoring": "gaussian", "options": {"sigma": 0.1}})
    client.load_model("later")
    assert (client.infer("later", inputs).as_numpy("output") != wide).any()
    assert statistics_of(client, "later").execution_count == 2

    client.unload_model("later")
    assert index_of(client)["later"] == ("UNAVAILABLE", "unloaded")
    assert code_of(client.infer, "later", inputs) == "NOT_FOUND"


def test_what_cannot_be_loaded(client):
    assert code_of(client.load_model, "nobody") == "NOT_FOUND"
    assert code_of(client.load_model, "broken") == "INVALID_ARGUMENT"
    assert code_of(client.load_model, "../models") == "INVALID_ARGUMENT"
    assert code_of(client.load_model, SDPA) == "INVALID_ARGUMENT"
    config = json.dumps({"scoring": "gaussian"})
    assert code_of(client.load_model, "trained_additive", config=config) == "UNIMPLEMENTED"
    assert code_of(client.unload_model, "nobody") == "NOT_FOUND"


def test_model_control_is_off_by_default(plain_client):
    assert sorted(index_of(plain_client)) == BUILT_IN
    assert code_of(plain_client.load_model, SDPA) == "UNAVAILABLE"
    assert code_of(plain_client.unload_model, SDPA) == "UNAVAILABLE"


def test_settings_are_readable(client):
    trace = client.get_trace_settings().settings
    assert list(trace["trace_level"].value) == ["OFF"]
    assert client.get_trace_settings(SDPA).settings["trace_rate"].value
    log = client.get_log_settings().settings
    assert log["log_info"].bool_param and log["log_error"].bool_param
    assert log["log_verbose_level"].uint32_param == 0


def test_settings_are_not_writable(client):
    trace = {"trace_level": ["TIMESTAMPS"]}
    assert code_of(client.update_trace_settings, settings=trace) == "UNIMPLEMENTED"
    log = {"log_info": False}
    assert code_of(client.update_log_settings, settings=log) == "UNIMPLEMENTED"
