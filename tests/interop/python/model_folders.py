"""Folders of a model repository."""

import json

import numpy as np
from safetensors.numpy import save_file


def add_model(repository, name, config, tensors=None):
    folder = repository / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors:
        contiguous = {key: np.ascontiguousarray(t) for key, t in tensors.items()}
        save_file(contiguous, folder / "parameters.safetensors")
