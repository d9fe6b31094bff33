"""The same against a server that speaks S3, where one is installed: pip install s3fs 'moto[server]'."""

import pytest

from transformer_jax.runtime.object_stores import Store, StoreError

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint():
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_objects_of_an_s3_store(endpoint, monkeypatch, tmp_path):
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem().mkdir("bucket")
    store, sibling = Store("s3://bucket/runs/a"), Store("s3://bucket/runs/ab")
    assert store.create("train.lease", b"1")
    assert not store.create("train.lease", b"2")
    sibling.write("x", b"1")
    (tmp_path / "file").write_bytes(bytes(6 << 20))
    store.upload(tmp_path / "file", "checkpoints/1/params/a")
    before = store.listing()
    assert {name: found.size for name, found in before.items()} == {"train.lease": 1, "checkpoints/1/params/a": 6 << 20}
    store.download("checkpoints/1/params/a", tmp_path / "copy", 6 << 20)
    assert (tmp_path / "copy").read_bytes() == bytes(6 << 20)
    store.write("train.lease", b"3")
    assert store.listing()["train.lease"].version != before["train.lease"].version
    for _ in range(2):
        store.remove("train.lease")
    assert store.read("train.lease") == b""
    with pytest.raises(StoreError, match="bucket does not exist"):
        Store("s3://nosuch/a").create("x", b"1")
