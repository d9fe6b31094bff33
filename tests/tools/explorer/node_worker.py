"""The worker of the live page in Node."""

import base64
import json
import shutil
import subprocess
from typing import Any

from transformer_jax.tools.explorer.live import LiveModel, worker_source

# Answers requests, one a line, each after the one before.
DRIVER = """
const waiting = require("fs").readFileSync(0, "utf8").split("\\n").filter(Boolean).map(JSON.parse);
let began = null;
const next = () => {
  if (!waiting.length) return;
  const data = waiting.shift();
  if (data.action === "load") data.bytes = new Uint8Array(Buffer.from(data.bytes, "base64"));
  began = process.cpuUsage();
  self.onmessage({ data });
};
const plain = (key, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
self.postMessage = (message) => {
  if ("done" in message) return;
  process.stdout.write(JSON.stringify({ ...message, milliseconds: process.cpuUsage(began).user / 1000 }, plain) + "\\n");
  setImmediate(next);
};
next();
"""


def node_program() -> str | None:
    """The path of Node, None where there is none."""
    return shutil.which("node")


def ask_worker(model: LiveModel, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers to ``requests`` after the model is loaded, as ``{result}`` or ``{error}``, with CPU ``milliseconds``."""
    loading = {**model.description, "action": "load", "bytes": base64.b64encode(model.parameters).decode()}
    asked = [{"id": number, **each} for number, each in enumerate([loading, *requests])]
    script = "globalThis.self = globalThis;\n" + worker_source() + DRIVER
    node = node_program()
    assert node, "there is no Node"
    told = "\n".join(json.dumps(each) for each in asked)
    done = subprocess.run([node, "-e", script], input=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    loaded, *answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert "error" not in loaded, loaded
    return answers
