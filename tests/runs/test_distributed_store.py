"""Several processes that train at S3 (moto's server) and at GCS (Google's storage-testbench):
faults, killed processes.

For GCS, `git clone https://github.com/googleapis/storage-testbench`, start it as its README says,
and set STORAGE_TESTBENCH=127.0.0.1:9000.
"""

import http.client
import io
import os
import socket
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_environment import ends, launch
from run_settings import tiny_config
from run_steps import metrics_of, parameters_of, write_recipe

from transformer_jax.config import ExperimentConfig, MeshConfig
from transformer_jax.run_directory.layout import RunDirectory

pytestmark = pytest.mark.slow
UPDATES = 6
# How objects are written at S3, at GCS.
UPLOAD = ("PUT", "POST")
# The first, undisturbed run fills the cache, so that no process is killed while it writes there.
CACHED = {"JAX_ENABLE_COMPILATION_CACHE": "true"}


class Store:
    """A server of objects: ``fault`` happens at every ``every``-th request, ``watch`` sees each."""

    def __init__(self, kind: str, app: Callable, handler: type | None = None) -> None:
        self.kind, self.bucket = kind, f"bucket-{os.getpid()}"
        self.address = f"{kind}://{self.bucket}"
        self.fault, self.every, self.requests = "", 7, 0
        self.watch: Callable[[str, str], None] = lambda method, path: None
        # moto's answers are not safe for threads.
        self._one = threading.Lock()
        self._app, self._handler = app, handler

    def serve(self) -> str:
        from werkzeug.serving import make_server

        server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=self._handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    def __call__(self, environ: dict, start_response: Callable) -> list[bytes]:
        self.requests += 1
        happens = self.requests % self.every == 0
        name = f"{environ['PATH_INFO']}?{urllib.parse.unquote(environ['QUERY_STRING'])}"
        if "uploadType=multipart" in name:  # the body begins with the name of the object
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            name, environ["wsgi.input"] = body[:300].decode(errors="replace"), io.BytesIO(body)
        self.watch(environ["REQUEST_METHOD"], name)
        if happens and self.fault == "503":
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"]
        if happens and self.fault == "slow":
            time.sleep(2)
        with self._one:
            answer = list(self._app(environ, start_response))
        if happens and self.fault == "lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer


def forward(environ: dict, start_response: Callable) -> list[bytes]:
    """Forwards a request to the testbench, which wants CRLF in the multipart uploads that gcsfs
    writes with LF."""
    kind, body = environ.get("CONTENT_TYPE", ""), environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if kind.startswith("multipart/related") and b"\r\n" not in body.partition(b"\n\n")[0]:
        description, media, content = body.split(b"\n\n", 2)
        content, _, end = content.rpartition(b"\n")
        body = b"\n\n".join([description, media, b""]).replace(b"\n", b"\r\n") + content + b"\r\n" + end
    headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
    headers.pop("TRANSFER-ENCODING", None)
    with closing(http.client.HTTPConnection(os.environ["STORAGE_TESTBENCH"])) as connection:
        connection.request(environ["REQUEST_METHOD"], environ["RAW_URI"], body, {**headers, "CONTENT-TYPE": kind})
        answer = connection.getresponse()
        start_response(f"{answer.status} {answer.reason}", answer.getheaders())
        return [answer.read()]


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request) -> Iterator[Store]:
    needs = {"s3": ("moto.server", "s3fs"), "gs": ("gcsfs",)}
    for package in needs[request.param]:
        pytest.importorskip(package, reason=f"needs {package}: pip install 'moto[server]' s3fs gcsfs")
    import fsspec

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "s3":
            from moto.moto_server import werkzeug_app

            app = werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app)
            store = Store("s3", app, werkzeug_app.MotoRequestHandler)
            patch.setenv("AWS_ENDPOINT_URL", store.serve())
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
                patch.setenv(name, "us-east-1")
        else:
            if "STORAGE_TESTBENCH" not in os.environ:
                pytest.skip("needs Google's storage-testbench: STORAGE_TESTBENCH=host:port")
            store = Store("gs", forward)
            url = store.serve()
            for name in ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL"):
                patch.setenv(name, url)
            patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
        fsspec.filesystem(store.kind, skip_instance_cache=True).mkdir(store.bucket)
        yield store


@pytest.fixture(autouse=True)
def no_fault(store):
    store.fault, store.watch = "", lambda method, path: None


def on(devices: int, cache: Path, **training: object) -> ExperimentConfig:
    config = tiny_config(cache, num_updates=UPDATES, evaluate_every=0, checkpoint_every=2, **training)
    return replace(config, mesh=MeshConfig(data=max(devices // 2, 1), fsdp=min(devices, 2), tensor=1))


def start(config: ExperimentConfig, folder: Path, address: str, count: int, extra: str = "") -> list:
    devices, recipe = config.mesh.data * config.mesh.fsdp // count, write_recipe(config, folder, extra)
    return launch("train", f"--config={recipe}", folder=address, count=count, devices=devices, **CACHED)


def assert_equal(address: str, whole: Path, folder: Path, cache: Path) -> None:
    """The run at the address has the metrics and the parameters of the other."""
    import fsspec

    files = fsspec.filesystem(address.partition(":")[0], skip_instance_cache=True)
    files.get(address, str(folder), recursive=True)
    assert metrics_of(folder) == metrics_of(whole)
    for left, right in zip(*(parameters_of(each, on(1, cache), UPDATES) for each in (folder, whole)), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def whole(cache, tmp_path_factory) -> Path:
    """What two processes of two devices trained on a disk, without a fault."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    (first, said), (second, _) = ends(start(on(4, cache), folder, str(folder), 2))
    assert (first, second) == (0, 0), said
    return folder


def kill_at(store: Store, processes: list, part: str) -> None:
    """Kills the processes when the store gets an object of this name."""

    def watch(method: str, path: str) -> None:
        if method in UPLOAD and part in path:
            for process in processes:
                process.kill()

    store.watch = watch


@pytest.mark.parametrize(
    ("fault", "last", "count", "survivors", "resumed_by"),
    [
        ("503", "4/rest/ocdbt.process_1", 2, 0, 2),
        ("slow", "4/commit_success", 2, 0, 2),
        ("lost", "6/progress", 2, 0, 2),
        ("lost", "a whole run", 0, 0, 2),
        ("503", "4/commit_success", 4, 0, 4),
        ("503", "4/rest/ocdbt.process_3", 4, 3, 2),
        ("", "6/progress", 2, 0, 4),
        ("", "4/rest/ocdbt.process_1", 2, 1, 1),
    ],
)
def test_nothing_is_lost_by_kills_and_faults(store, whole, cache, tmp_path, fault, last, count, survivors, resumed_by):
    config, address = on(4, cache), f"{store.address}/{tmp_path.name}"
    store.fault = fault
    processes = start(config, tmp_path / "a", address, count) if count else []
    kill_at(store, processes[survivors:], f"checkpoints/{last}")
    outputs = ends(processes, 1200)
    assert [status for status, _ in outputs] == [75] * survivors + [-9] * (count - survivors), outputs
    store.watch = lambda method, path: None
    outputs = ends(start(config, tmp_path / "b", address, resumed_by), 1200)
    assert [status for status, _ in outputs] == [0] * resumed_by, outputs
    assert ("resumed at update" in outputs[0][1]) == (count > 0)
    assert_equal(address, whole, tmp_path / "got", cache)


def test_a_checkpoint_takes_few_requests(store, cache, tmp_path):
    requests: list[str] = []
    store.watch = lambda method, path: requests.append(f"{method} {path}")
    assert [status for status, _ in ends(start(on(1, cache), tmp_path / "a", f"{store.address}/few", 1))] == [0]
    begun = [next(at for at, each in enumerate(requests) if f"checkpoints/{step}" in each) for step in (2, 4)]
    assert 20 < begun[1] - begun[0] <= 48, requests[begun[0] : begun[1]]


def test_four_processes_are_refused_at_the_address_of_another_trainer(store, cache, tmp_path):
    address = f"{store.address}/busy"
    with RunDirectory(address).locked():
        outputs = ends(start(on(4, cache), tmp_path / "a", address, 4))
    assert [status for status, _ in outputs] == [2] * 4, outputs
    assert all(f"another process is training in {address}" in said for _, said in outputs), outputs


def test_a_replaced_object_is_found_and_the_run_resumes_from_the_checkpoint_before(store, cache, tmp_path):
    import fsspec

    config, address, files = (
        on(4, cache),
        f"{store.address}/replaced",
        fsspec.filesystem(store.kind, skip_instance_cache=True),
    )
    processes = start(config, tmp_path / "a", address, 2)
    kill_at(store, processes, "checkpoints/6/")
    assert [status for status, _ in ends(processes)] == [-9, -9]
    store.watch = lambda method, path: None
    name = max(files.find(f"{store.bucket}/replaced/checkpoints/4/rest/ocdbt.process_1"), key=files.size)
    files.pipe_file(name, bytes(byte ^ 1 for byte in files.cat_file(name)))
    (first, said), (second, _) = ends(start(config, tmp_path / "b", address, 2))
    assert (first, second) == (0, 0), said
    damage = f"checkpoint 4 is damaged: {name.partition('/4/')[2]} changed since written"
    assert f"{damage}; moved to {address}/damaged-4" in said and "resumed at update 2" in said


def test_processes_that_lose_the_lock_end_without_a_checkpoint(store, cache, tmp_path):
    import fsspec

    files = fsspec.filesystem(store.kind, skip_instance_cache=True)

    def watch(method: str, path: str) -> None:
        if method in UPLOAD and "checkpoints/2/" in path:
            store.watch = lambda method, path: None
            files.pipe_file(f"{store.bucket}/lost-lock/train.lock", b"other, process 1, abc")

    store.watch = watch
    (first, said), (second, _) = ends(start(on(4, cache), tmp_path / "a", f"{store.address}/lost-lock", 2))
    assert (first, second) == (1, 75) and "another process trains there now (other, process 1)" in said
    found = {"/".join(name.split("/")[3:]) for name in files.find(f"{store.bucket}/lost-lock/checkpoints")}
    assert "0/commit_success.txt" in found
    assert not {name for name in found if name.startswith("4/") or name == "2/commit_success.txt"}
