"""Definitions of resources that are in no package: what has which fields, as JSON schemas."""

import copy

TEXT, FLAG, COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}


def fields(required, **optional):
    """An object that has these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def spoiled(resource, path, value):
    """The same with another value at a path of its specification."""
    wrong = copy.deepcopy(resource)
    at = wrong["spec"]
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return wrong
