"""Hugging Face models generate with their keys on a server, or in an engine."""

import copy
import gc

import pytest
import torch
from logged_calls import calls_until_now
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3NextConfig,
)

from attention_client import Client, DeadlineExceededError, LocalServer
from attention_client.transformers import NAME, ServiceCache, register
from attention_engine import Engine

SMALL = dict(
    vocab_size=100,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=256,
    pad_token_id=0,
    eos_token_id=None,
    bos_token_id=None,
    tie_word_embeddings=False,  # else some models repeat the last token for ever
)
EXPERTS = dict(num_local_experts=2, num_experts_per_tok=1)
# With what PyTorch itself computes: sdpa has neither a softcap nor sinks.
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig(**SMALL), "sdpa"),
    "mistral": (MistralForCausalLM, MistralConfig(**SMALL, sliding_window=5), "sdpa"),
    "gemma2": (
        Gemma2ForCausalLM,
        Gemma2Config(
            **SMALL,
            sliding_window=5,
            attn_logit_softcapping=0.5,
            query_pre_attn_scalar=1,
        ),
        "eager",
    ),
    "gpt-oss": (
        GptOssForCausalLM,
        GptOssConfig(**SMALL, **EXPERTS, sliding_window=4),
        "eager",
    ),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**SMALL), "sdpa"),
}
SEARCHES = {
    "greedy": dict(do_sample=False),
    "sampling": dict(do_sample=True, top_k=0),
    "beams": dict(do_sample=False, num_beams=3, num_return_sequences=2),
    "chunks": dict(do_sample=False, prefill_chunk_size=4),
}


@pytest.fixture(autouse=True)
def registered(computing):
    register(computing)
    with torch.no_grad():
        yield


def make(name):
    kind, config, _ = MODELS[name]
    torch.manual_seed(1)
    config = copy.deepcopy(config)
    # Random weights attend nearly evenly; larger ones have them choose.
    config.initializer_range = 0.2
    model = kind(config).eval()
    model.set_attn_implementation(NAME)
    return model


@pytest.fixture
def llama():
    return make("llama")


@pytest.fixture
def cache(computing, llama):
    with ServiceCache(llama.config, computing) as made:
        yield made


def tokens(*shape):
    return torch.randint(1, 100, shape, generator=torch.Generator().manual_seed(3))


def generate(model, prompt, attention_mask=None, **options):
    if attention_mask is None:
        attention_mask = torch.ones_like(prompt)
    options = {"max_new_tokens": 12, "do_sample": False} | options
    torch.manual_seed(2)
    return model.generate(prompt, attention_mask=attention_mask, **options)


def by_pytorch(model, *arguments, implementation="sdpa", **options):
    model.set_attn_implementation(implementation)
    found = generate(model, *arguments, **options)
    model.set_attn_implementation(NAME)
    return found


@pytest.mark.parametrize("padding", [0, 4])
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
def test_a_decoder_generates_the_same_tokens(computing, name, search, padding):
    model, options = make(name), SEARCHES[search]
    prompt = tokens(2, 9)
    mask = torch.ones_like(prompt)
    mask[0, :padding] = 0  # the first prompt is shorter
    implementation = MODELS[name][2]
    expected = by_pytorch(model, prompt, mask, implementation=implementation, **options)
    with ServiceCache(model.config, computing) as cache:
        actual = generate(model, prompt, mask, past_key_values=cache, **options)
        assert cache.get_seq_length() == 20
        assert {len(sequence) for sequence in cache.sequences} == {20}
    assert actual.shape[1] == 21
    assert torch.equal(actual, expected)


def test_logits_are_pytorchs(llama, cache):
    prompt = tokens(1, 30)
    llama.set_attn_implementation("sdpa")
    expected = llama(prompt).logits
    llama.set_attn_implementation(NAME)
    found = [
        llama(prompt[:, first:last], past_key_values=cache).logits
        for first, last in ((0, 11), (11, 29), (29, 30))
    ]
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
def test_the_models_datatype_is_the_caches(computing, llama, kind):
    llama = llama.to(kind)
    with ServiceCache(llama.config, computing) as cache:
        logits = llama(tokens(1, 9), past_key_values=cache).logits
        assert logits.dtype == kind
        held = "float32" if kind == torch.float64 else str(kind).removeprefix("torch.")
        assert cache.sequences[0].form.datatype == held


def test_a_step_is_one_call_for_each_layer(llama):
    with (
        LocalServer(log_level="debug") as server,
        Client(server.target) as client,
        ServiceCache(llama.config, client) as cache,
    ):
        llama(tokens(3, 9), past_key_values=cache)
        before = calls_until_now(server, client)
        llama(tokens(3, 1), past_key_values=cache)
        assert calls_until_now(server, client) - before == 2


def test_beams_share_the_memory_of_the_prompt(llama, cache):
    llama(tokens(1, 200), past_key_values=cache)
    cache.batch_repeat_interleave(3)
    generate(llama, tokens(3, 210), past_key_values=cache)
    names = [sequence.name for sequence in cache.sequences]
    cache.reorder_cache(torch.tensor([2, 0, 2]))
    assert [sequence.name for sequence in cache.sequences][:2] == [names[2], names[0]]
    assert len({sequence.name for sequence in cache.sequences}) == 3
    assert names[1] not in {one.name for one in cache._store.client.sequences()}


def test_one_document_is_asked_about_twice(llama, cache):
    document, questions = tokens(1, 40), [tokens(1, 5), tokens(1, 7) + 1]
    llama(document, past_key_values=cache)
    for question in questions:
        prompt = torch.cat([document, question], 1)
        expected = by_pytorch(llama, prompt)
        for copied in (cache.fork, lambda: copy.deepcopy(cache)):
            with copied() as asked:
                actual = generate(llama, prompt, past_key_values=asked)
            assert torch.equal(actual, expected)
    assert cache.get_seq_length() == 40


def test_many_questions_are_a_batch(llama, cache):
    document, questions = tokens(1, 40), tokens(5, 6)
    llama(document, past_key_values=cache)
    cache.batch_repeat_interleave(5)
    prompt = torch.cat([document.expand(5, -1), questions], 1)
    actual = generate(llama, prompt, past_key_values=cache)
    assert torch.equal(actual, by_pytorch(llama, prompt))
    cache.batch_select_indices(torch.tensor([3, 1]))
    assert len(cache.sequences) == 2
    more = torch.cat([actual[[3, 1]], tokens(2, 3)], 1)
    again = generate(llama, more, past_key_values=cache)
    assert torch.equal(again, by_pytorch(llama, more))


def test_crop_takes_the_last_tokens_away(llama, cache):
    prompt = tokens(1, 20)
    llama(prompt, past_key_values=cache)
    cache.crop(-8)
    assert cache.get_seq_length() == 12
    other = torch.cat([prompt[:, :12], tokens(1, 4)], 1)
    actual = generate(llama, other, past_key_values=cache)
    assert torch.equal(actual, by_pytorch(llama, other))
    with pytest.raises(ValueError, match="tokens_to_remove"):
        cache.crop(3)


def test_an_assistant_may_guess(llama, cache):
    prompt, assistant = tokens(1, 9), make("llama")
    assistant.set_attn_implementation("sdpa")
    options = {"assistant_model": assistant, "max_new_tokens": 20}
    actual = generate(llama, prompt, past_key_values=cache, **options)
    assert torch.equal(actual, by_pytorch(llama, prompt, max_new_tokens=20))


def lose_answer(computing, monkeypatch, number):
    """The answer to one of the next calls does not arrive."""
    answering, name = computing, "_call"
    if isinstance(computing, Engine):
        answering, name = computing._sequences, "answer"
    call, calls = getattr(answering, name), []

    def lose(*arguments):
        calls.append(arguments)
        answer = call(*arguments)
        if len(calls) == number:
            raise DeadlineExceededError("lost")
        return answer

    monkeypatch.setattr(answering, name, lose)


def test_a_cache_whose_sequences_were_not_made_leaves_none(
    computing, llama, monkeypatch
):
    with ServiceCache(llama.config, computing, label="lost") as cache:
        lose_answer(computing, monkeypatch, 1)
        with pytest.raises(DeadlineExceededError):
            llama(tokens(2, 9), past_key_values=cache)
        assert not list(computing.sequences(label="lost"))
        llama(tokens(2, 9), past_key_values=cache)
        assert len(list(computing.sequences(label="lost"))) == 2


def test_a_model_that_is_interrupted_between_layers_can_go_on(llama, cache):
    def interrupt(*_):
        raise KeyboardInterrupt

    prompt = tokens(2, 9)
    llama(prompt, past_key_values=cache)
    interrupting = llama.model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        llama(tokens(2, 1), past_key_values=cache)
    interrupting.remove()
    assert cache.sequences[0].lengths == (10, 9)
    longer = torch.cat([prompt, tokens(2, 2)], 1)
    actual = generate(llama, longer, past_key_values=cache)
    assert torch.equal(actual, by_pytorch(llama, longer))


def test_a_call_that_failed_leaves_the_tokens_before_it(
    computing, llama, cache, monkeypatch
):
    prompt = tokens(2, 9)
    llama(prompt, past_key_values=cache)
    lose_answer(computing, monkeypatch, 2)  # of the second layer
    with pytest.raises(DeadlineExceededError):
        llama(tokens(2, 1), past_key_values=cache)
    assert cache.get_seq_length() == 9
    actual = generate(
        llama, torch.cat([prompt, tokens(2, 2)], 1), past_key_values=cache
    )
    assert torch.equal(actual, by_pytorch(llama, torch.cat([prompt, tokens(2, 2)], 1)))


def test_a_crop_that_failed_can_be_repeated(computing, llama, cache, monkeypatch):
    llama(tokens(3, 10), past_key_values=cache)
    lose_answer(computing, monkeypatch, 2)  # of the second entry
    with pytest.raises(DeadlineExceededError):
        cache.crop(-3)
    assert cache.get_seq_length() == 10
    cache.crop(-3)
    assert {one.describe().lengths for one in cache.sequences} == {(7, 7)}


def test_weights_are_returned_when_asked_for(llama, cache):
    prompt = tokens(2, 9)
    llama.set_attn_implementation("eager")
    expected = llama(prompt, output_attentions=True).attentions
    llama.set_attn_implementation(NAME)
    llama(prompt[:, :6], past_key_values=cache)
    actual = llama(
        prompt[:, 6:], past_key_values=cache, output_attentions=True
    ).attentions
    assert len(actual) == len(expected) == 2
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other[:, :, 6:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("other", ["sdpa", "eager"])
def test_another_attention_is_refused(llama, cache, other):
    llama.set_attn_implementation(other)
    with pytest.raises(RuntimeError, match="attention_service"):
        llama(tokens(1, 9), past_key_values=cache)


def test_another_batch_is_refused(llama, cache):
    llama(tokens(2, 9), past_key_values=cache)
    with pytest.raises(ValueError, match=r"a batch of 3 .expected 2"):
        llama(tokens(3, 1), past_key_values=cache)


def test_layers_without_keys_are_refused(computing):
    with pytest.raises(ValueError, match="linear_attention"):
        ServiceCache(Qwen3NextConfig(), computing)


def test_a_cache_that_was_not_deleted_can_be_deleted_again(
    computing, llama, monkeypatch
):
    def refuse(*_, **__):
        raise DeadlineExceededError("too late")

    cache = ServiceCache(llama.config, computing, label="again")
    llama(tokens(2, 9), past_key_values=cache)
    with monkeypatch.context() as patch:
        patch.setattr(type(computing), "delete_sequences", refuse)
        with pytest.raises(DeadlineExceededError):
            cache.reset()
    assert len(cache.sequences) == 2
    cache.reset()
    assert cache.sequences == ()
    assert not list(computing.sequences(label="again"))


def test_sequences_go_with_the_cache(computing, llama):
    def held():
        return len(list(computing.sequences(label="goes")))

    cache = ServiceCache(llama.config, computing, label="goes")
    llama(tokens(2, 9), past_key_values=cache)
    assert held() == 2
    forked = cache.fork()
    assert held() == 4
    del forked
    gc.collect()
    assert held() == 2
    cache.reset()
    assert (held(), cache.get_seq_length()) == (0, 0)
    with cache:
        llama(tokens(1, 9), past_key_values=cache)
        assert held() == 1
    assert held() == 0
