"""The served page: on this machine only, and no path from other pages to the run."""

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.tools.explorer.searches import Forced
from transformer_jax.tools.explorer.server import listen_locally, make_app


def force(run, text, prefix):
    if run:
        raise ConfigError("run: 1 is not one of 1 runs")
    return Forced(tuple(prefix), f"{text}!", -1.0, -2.0)


@pytest.fixture
def client():
    return make_app(lambda text: f"page of {text}", force).test_client()


def test_pages_and_forced_decoding(client):
    assert client.get("/", base_url="http://127.0.0.1:8000").text == "page of None"
    assert client.get("/?text=a+b", base_url="http://localhost").text == "page of a b"
    answer = client.post("/forced", json={"run": 0, "text": "a", "prefix": [5]}, base_url="http://127.0.0.1")
    assert answer.json == {"text": "a!", "score": -1.0, "logProb": -2.0}


def test_requests_that_cannot_be_answered(client):
    for body, status, message in (
        (b'{"run": 1, "text": "a", "prefix": [5]}', 400, "not one of 1 runs"),
        (b'{"run": 0, "text": "a", "prefix": [1e300]}', 400, "expected run"),
        (b'{"run": 0, "text": "a", "prefix": [true]}', 400, "expected run"),
        (b'{"run": 0, "text": "\\ud800", "prefix": []}', 400, "expected run"),
        (b'{"run": 0, "text": " ", "prefix": []}', 400, "expected run"),
        (b"[]", 400, "expected run"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b'"%s"' % (b"a" * (1 << 20)), 413, ""),
    ):
        answer = client.post("/forced", data=body, content_type="application/json", base_url="http://127.0.0.1")
        assert (body[:50], answer.status_code, message in answer.text) == (body[:50], status, True)


def test_other_names_and_other_origins_are_refused(client):
    assert client.get("/", base_url="http://example.com").status_code == 400
    for host in ("127.0.0.1:8000@evil.com", "localhost:80.evil.com", "127.0.0.1.evil.com", "localhost:", ""):
        assert client.get("/", headers={"Host": host}).status_code == 400
    assert client.get("/", headers={"Host": "localhost:8000"}).status_code == 200
    own = {"base_url": "http://127.0.0.1"}
    assert client.post("/forced", data='{"run": 0}', headers={"content-type": "text/plain"}, **own).status_code == 415
    sites = {"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200}
    origins = {"http://evil.example": 403, "null": 403, "http://127.0.0.1": 200}
    for header, statuses in {"sec-fetch-site": sites, "origin": origins}.items():
        for value, status in statuses.items():
            asked = client.get("/?text=a", headers={header: value}, **own)
            assert asked.status_code == status
            assert asked.headers["x-frame-options"] == "DENY"
            assert asked.headers["content-security-policy"] == "frame-ancestors 'none'"


def test_a_port_is_this_machines_own_and_taken_at_once():
    with listen_locally(0) as listener, pytest.raises(ConfigError, match="--port"):
        assert listener.getsockname()[0] == "127.0.0.1"
        listen_locally(listener.getsockname()[1])
