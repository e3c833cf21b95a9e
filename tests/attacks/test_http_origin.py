"""What a web page on another site can have its reader's browser send."""

import json

import pytest
from http_callers import INFER, ONES, ask

JSON = {"Content-Type": "application/json"}
EVIL = "https://evil.example"
GOOD = "https://good.example:8443"
POSTS = [
    (INFER, ONES),
    ("/v2/repository/index", "{}"),
    ("/v2/repository/models/a/unload", ""),
    ("/v2/systemsharedmemory/region/a/register", "{}"),
]


@pytest.mark.parametrize("path, body", POSTS)
@pytest.mark.parametrize(
    "headers, status",
    [
        ({**JSON, "Origin": EVIL}, 403),
        ({**JSON, "Origin": "null"}, 403),
        ({**JSON, "Host": "evil.example:8002"}, 403),
        ({"Content-Type": "text/plain", "Origin": EVIL}, 403),
    ],
    ids=["Origin", "no origin", "Host", "text"],
)
def test_what_a_page_sends_is_refused(start, path, body, headers, status):
    server = start("--allow-shared-memory")
    reply = ask(server, "POST", path, body, headers)
    assert reply[0] == status
    assert "--http-" in json.loads(reply[2])["error"]


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_bodies_of_forms_are_refused(start, content_type):
    server = start()
    status, _, body = ask(server, "POST", INFER, ONES, {"Content-Type": content_type})
    assert status == 415
    assert "application/json" in json.loads(body)["error"]
    assert ask(server, "POST", INFER, ONES)[0] == 200
    assert ask(server, "POST", INFER, ONES, JSON)[0] == 200


def test_probes_come_by_any_name_and_pages_by_none(start):
    server = start()
    for path in ("/v2/health/live", "/v2/health/ready", "/metrics"):
        assert ask(server, "GET", path, headers={"Host": "attention.example:8002"})[0] == 200
        assert ask(server, "GET", path, headers={"Origin": EVIL})[0] == 403


def test_names_and_origins_that_are_allowed(start):
    server = start("--http-allow-origin", f"https://a.example,{GOOD}", "--http-host", "me.example")
    assert ask(server, "GET", "/v2", headers={"Host": "me.example:8002"})[0] == 200
    assert ask(server, "GET", "/v2", headers={"Host": "you.example:8002"})[0] == 403
    asked = {"Origin": GOOD, "Access-Control-Request-Method": "POST"}
    for method, body, headers in [("OPTIONS", None, asked), ("POST", ONES, {**JSON, "Origin": GOOD})]:
        status, told, _ = ask(server, method, INFER, body, headers)
        assert status in (200, 204)
        assert told["Access-Control-Allow-Origin"] == GOOD
        assert told["Vary"] == "Origin"
    assert ask(server, "POST", INFER, ONES, {**JSON, "Origin": EVIL})[0] == 403
