"""The worker of the live page in Node."""

import base64
import json
import shutil
import subprocess
from typing import Any

import pytest

from transformer_jax.tools.explorer.live import LiveModel, worker_source

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")

# Answers requests, one a line, each after the one before; one that is `superseded` is followed at
# once.
DRIVER = """
const waiting = require("fs").readFileSync(0, "utf8").split("\\n").filter(Boolean).map(JSON.parse);
let began = null;
const next = () => {
  if (!waiting.length) return;
  const data = waiting.shift();
  if (data.action === "load") data.bytes = new Uint8Array(Buffer.from(data.bytes, "base64"));
  began = process.cpuUsage();
  self.onmessage({ data });
  if (data.superseded) next();
};
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
self.postMessage = (message) => {
  if ("done" in message) return;
  process.stdout.write(JSON.stringify({ ...message, milliseconds: process.cpuUsage(began).user / 1000 }, plain) + "\\n");
  setImmediate(next);
};
next();
"""


def timed_answers(model: LiveModel, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the answers to ``requests`` after the model is loaded, with ``result`` or ``error``
    and CPU ``milliseconds``."""
    loading = {**model.description, "action": "load", "bytes": base64.b64encode(model.parameters).decode()}
    asked = "\n".join(json.dumps({"id": number, **request}) for number, request in enumerate([loading, *requests]))
    script = "globalThis.self = globalThis;\n" + worker_source() + DRIVER
    done = subprocess.run(["node", "-e", script], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded, *answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert "error" not in loaded, loaded
    return answers


def ask_worker(model: LiveModel, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of ``requests`` after the model is loaded; an answer without one as
    ``{error}``."""
    return [answer.get("result", answer) for answer in timed_answers(model, *requests)]
