"""Which attention runs on which devices: pretended ones, that say they are of another kind."""

from typing import NamedTuple

import jax
import pytest

from transformer_jax.config import ConfigError, MeshConfig, RnnConfig, TransformerConfig
from transformer_jax.layers.attention import ByLength
from transformer_jax.layers.attention_backends import (
    BY_HEAD,
    CudnnAttention,
    EinsumAttention,
    PackedCudnnAttention,
    RowBlockAttention,
    TpuFlashAttention,
)
from transformer_jax.models import devices
from transformer_jax.models.devices import attention_of, devices_of
from transformer_jax.runtime import hardware
from transformer_jax.runtime.hardware import batch_tokens_on
from transformer_jax.training.sharding import make_mesh

MESH = make_mesh(MeshConfig(data=1), jax.devices()[:1])


class Client(NamedTuple):
    platform_version: str


class Device(NamedTuple):
    platform: str
    device_kind: str
    client: Client
    compute_capability: str = ""


KINDS = {
    "cpu": Device("cpu", "cpu", Client("")),
    "cuda": Device("gpu", "NVIDIA H100", Client("PJRT C API\ncuda 12090"), "9.0"),
    "ampere": Device("gpu", "NVIDIA A100", Client("PJRT C API\ncuda 12090"), "8.0"),
    # Compiled for, and not here.
    "absent": Device("gpu", "CUDA NVIDIA H100 80GB HBM3", Client("PJRT C API"), "9.0"),
    "rocm": Device("gpu", "MI300X", Client("PJRT C API\nrocm 60000")),
    "tpu": Device("tpu", "TPU v5e", Client("")),
}


def choice(kind: str, one_sentence: bool = False, **settings: object):
    """What runs on a device of this kind."""
    model = TransformerConfig(**({"compute_dtype": "bfloat16"} | settings))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices, "device_of", lambda mesh: KINDS[kind])
        return attention_of(model, MESH, one_sentence=one_sentence)


PACKED, CUDNN = PackedCudnnAttention(MESH, BY_HEAD), CudnnAttention(one_sentence=True)
TPU = {item: item(MESH, BY_HEAD) for item in (RowBlockAttention, TpuFlashAttention)}


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("cpu", {}, ByLength()),
        ("rocm", {}, ByLength()),
        ("cuda", {}, ByLength(long=PACKED, limit=64 * 64)),
        ("absent", {}, ByLength(long=PACKED, limit=64 * 64)),
        ("cuda", {"one_sentence": True}, ByLength(long=CUDNN, limit=64 * 64)),
        ("ampere", {"one_sentence": True}, ByLength(long=CUDNN, limit=64 * 64)),
        # With a mask cuDNN is taken only from more scores on.
        ("ampere", {}, ByLength(long=CudnnAttention())),
        ("tpu", {}, ByLength(TPU[RowBlockAttention], TPU[TpuFlashAttention], 512 * 512)),
        # What the kernels cannot do is done without them.
        ("cuda", {"compute_dtype": "float32"}, ByLength()),
        ("cuda", {"d_key": 256, "d_value": 256}, ByLength()),
        ("tpu", {"attention_dropout": 0.1}, ByLength()),
        ("cpu", {"attention_backend": "einsum"}, EinsumAttention()),
        ("cuda", {"attention_backend": "cudnn"}, PACKED),
    ],
)
def test_the_best_that_runs_there_or_what_is_asked_for(kind, settings, expected):
    assert choice(kind, **settings) == expected


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "cpu",
            {"attention_backend": "cudnn"},
            "cudnn needs an NVIDIA GPU, and the devices here are of the kind 'cpu'",
        ),
        ("cuda", {"attention_backend": "tpu_flash"}, "tpu_flash needs a TPU, .*H100.*; use auto, einsum or blockwise"),
        ("cuda", {"attention_backend": "cudnn", "attention_dropout": 0.1}, "has no dropout, .* is 0.1"),
        ("cuda", {"attention_backend": "cudnn", "d_key": 20, "d_value": 20}, "a multiple of 8 up to 128, not of 20"),
    ],
)
def test_what_cannot_run_here_is_refused(kind, settings, message):
    with pytest.raises(ConfigError, match=rf"model\.attention_backend: .*{message}"):
        choice(kind, **settings)


def test_recurrent_models_have_attentions_of_their_own():
    assert isinstance(attention_of(RnnConfig(), MESH), EinsumAttention)


def test_heads_that_devices_cannot_share_are_refused():
    with pytest.raises(ConfigError, match="model.num_heads=6 does not divide over context=4 x tensor=1"):
        devices_of(TransformerConfig(num_heads=6, d_model=48), make_mesh(MeshConfig(data=2, context=4)))


def test_accelerators_decode_more_at_once_unless_told(monkeypatch):
    for kind, expected in {"cpu": 4096, "cuda": 16_384, "tpu": 16_384}.items():
        monkeypatch.setattr(hardware, "device_of", lambda mesh, kind=kind: KINDS[kind])
        assert [batch_tokens_on(MESH, setting) for setting in (0, 70)] == [expected, 70]
