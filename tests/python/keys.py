"""Keys and values for tests of sequences."""

import numpy as np

HEADS, WIDTH = 2, 8


def joined(*parts):
    return [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]


def attend_with_keys(computing, query, rows, **options):
    key, value = rows
    return computing.attend(query[None], key[None], value[None], **options).output[0]
