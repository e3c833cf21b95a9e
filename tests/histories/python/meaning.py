"""What recorded calls mean for each layer of each sequence: see recording.py.

A call is recorded as a list of dicts, one for each sequence that it concerns, with
`kind`, `name`, `layer` (absent: every layer) and what operations.Operation has; its
answer as a dict with `code`, `details` and, where it is OK, `results`: a dict for each
of these, by layer where it concerns several.
"""

import re

from operations import FOREVER, Operation

# An end of a call that says that nothing is known.
LOST = {"DEADLINE_EXCEEDED", "CANCELLED"}
# Refused, by the queue or for want of memory: a call that only appends has done nothing.
REFUSED = "RESOURCE_EXHAUSTED"
ALLOWED = {
    "create": {"ALREADY_EXISTS"},
    "born": {"NOT_FOUND", "OUT_OF_RANGE"},
    "delete": set(),
    "describe": {"NOT_FOUND"},
    "truncate": {"NOT_FOUND", "OUT_OF_RANGE"},
    "fork": {"NOT_FOUND", "OUT_OF_RANGE", "ALREADY_EXISTS"},
    "append": {"NOT_FOUND", "OUT_OF_RANGE", "ABORTED"},
    "attend": {"NOT_FOUND"},
}
ARGUMENTS = ("keys", "position", "wanted", "turn")
# The server's words where the answer of an attend became larger than planned.
APPENDED_ALL_THE_SAME = "its own keys are appended"


def told_length(details):
    """The length that an error tells."""
    found = re.search(r"there are (\d+) keys|the length is (\d+)", details)
    return int(found.group(1) or found.group(2)) if found else None


def _allowed(call):
    allowed = ALLOWED[call["kind"]]
    if call["kind"] == "attend" and call.get("keys"):
        allowed = allowed | {"OUT_OF_RANGE", "ABORTED"}
    return allowed


def problem_of(calls, answer):
    """None, or why an answer is wrong whatever the order."""
    code = answer["code"]
    if code in LOST | {"OK", REFUSED}:
        return None
    if any(code in _allowed(call) for call in calls):
        return None
    return f"{calls[0]['kind']} of {calls[0]['name']}: {code}: {answer['details']}"


def operations_of(calls, begin, end, answer, layers_of, client):
    """(name, layer, Operation) of all that may have had an effect or forbids something.

    `layers_of` gives the number of layers of a name.
    """
    for number, call in enumerate(calls):
        layers = (
            [call["layer"]]
            if call.get("layer") is not None
            else range(layers_of(call["name"]))
        )
        for layer in layers:
            fields = _fields(calls, number, layer, answer, len(layers) > 1)
            if fields is None:
                continue
            lost = fields["code"] == "UNKNOWN"
            operation = Operation(
                kind=call["kind"],
                begin=begin,
                end=FOREVER if lost else end,
                client=client,
                **{name: call[name] for name in ARGUMENTS if name in call},
                **fields,
            )
            if not (lost and operation.changes_nothing):
                yield call["name"], layer, operation


def _fields(calls, number, layer, answer, many_layers):
    """What its answer tells; None: it has done nothing, and nothing follows of it."""
    call = calls[number]
    if answer is None or answer["code"] in LOST:
        # Where a fork's new name is not told, nobody knows it.
        return None if call["kind"] in ("born", "fork") else {"code": "UNKNOWN"}
    code, details = answer["code"], answer["details"]
    if code == REFUSED:
        return {"code": "UNKNOWN"} if call["kind"] == "attend" else None
    if code == "OK":
        return _result_fields(answer["results"][number], layer)
    if call["kind"] == "attend":
        if APPENDED_ALL_THE_SAME in details:
            return {"code": "DONE"} if call.get("keys") else None
        entry = re.match(r"sequences\.entries\[(\d+)\]", details)
        at_fault = int(entry.group(1)) if entry else 0
        # Entries before the one at fault may be appended; those behind it are not.
        if number != at_fault:
            lost = number < at_fault and call.get("keys")
            return {"code": "UNKNOWN"} if lost else None
        return {"code": code, "length": told_length(details)}
    if call["kind"] in ("fork", "create") and len(calls) == 2:
        # A fork into a name that may be taken: which of the two is at fault.
        of_target = code == "ALREADY_EXISTS"
        if call["kind"] == "create":
            return {"code": code} if of_target else None
    if call["kind"] == "born":
        return None
    # Which layer was too short is not told.
    length = None if many_layers else told_length(details)
    return {"code": code, "length": length}


def _result_fields(result, layer):
    """The code is OK, or what the client has made of it."""
    fields = {"code": "OK"}
    for name, value in result.items():
        fields[name] = value[layer] if isinstance(value, dict) else value
    return fields
