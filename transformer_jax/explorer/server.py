"""The page served from the run itself, on this machine only: forced decoding is answered live."""

from collections.abc import Callable, Sequence

from flask import Flask, Response, request
from werkzeug.serving import BaseWSGIServer, make_server

from transformer_jax.config import ConfigError, DataError
from transformer_jax.explorer.page import forced_to_json
from transformer_jax.explorer.search_tree import Forced

HOST = "127.0.0.1"
HTTP_BAD_REQUEST, HTTP_NOT_FOUND = 400, 404

Render = Callable[[str | None], str]
"""The page of a text; of the texts of the command where there is None."""

Force = Callable[[int, str, Sequence[int]], Forced | None]
"""What run number ``n`` finds for a text when forced to begin with these tokens."""


def make_app(render: Render, force: Force) -> Flask:
    """``GET /?text=...`` is a page, ``POST /forced`` with ``run``, ``text`` and ``prefix`` is answered as JSON.

    Asked by another name than this machine's (a page elsewhere whose name was bound to it) it refuses; so does ``/forced``
    for what is not sent as JSON, which pages of other origins cannot do.
    """
    app = Flask(__name__, static_folder=None)
    app.config["TRUSTED_HOSTS"] = [HOST, "localhost"]

    @app.get("/")
    def page() -> Response:
        text = request.args.get("text", "").strip()
        return Response(render(text or None), mimetype="text/html")

    @app.post("/forced")
    def forced() -> tuple[dict, int]:
        asked = request.get_json()
        try:
            run, text, prefix = int(asked["run"]), str(asked["text"]), [int(token) for token in asked["prefix"]]
        except (KeyError, TypeError, ValueError):
            return {"error": "expected run (a number), text and prefix (token ids)"}, HTTP_BAD_REQUEST
        found = force(run, text, prefix)
        if found is None:
            return {"error": "no room is left after these tokens"}, HTTP_NOT_FOUND
        return forced_to_json(found), 200

    @app.errorhandler(ConfigError)
    @app.errorhandler(DataError)
    def refused(error: Exception) -> tuple[dict, int]:
        return {"error": str(error)}, HTTP_BAD_REQUEST

    return app


def make_local_server(app: Flask, port: int) -> BaseWSGIServer:
    """A server of one request at a time on 127.0.0.1; port 0 is any free one. Raises ConfigError when the port is taken."""
    try:
        return make_server(HOST, port, app)
    except (OSError, SystemExit):
        raise ConfigError(f"--port: {port} cannot be used on {HOST}; give another, or 0 for any free one") from None
