"""Import of TensorFlow, used only to feed data."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from transformer_jax.config import DataError


def require_tensorflow() -> None:
    """Raises DataError where TensorFlow is not installed; takes no time."""
    if find_spec("tensorflow") is None:
        raise DataError("feeding data needs TensorFlow: pip install tensorflow-cpu")


def start_tensorflow() -> ModuleType:
    """TensorFlow without accelerators, whose memory it would otherwise take as soon as it looks at them.

    Raises DataError where it cannot be imported.
    """
    return tensorflow_being_imported().result()


@cache
def tensorflow_being_imported() -> Future[ModuleType]:
    """Future of the result of ``start_tensorflow``; a thread imports TensorFlow, which takes seconds.

    One thread for the whole process: an import that several threads begin can give one of them half a module. The interpreter
    waits for it, which it must: it cannot end in the middle of loading TensorFlow.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="tensorflow")
    importing = pool.submit(_import_without_accelerators)
    pool.shutdown(wait=False)
    return importing


def _import_without_accelerators() -> ModuleType:
    require_tensorflow()
    # Silences its start-up messages and turns oneDNN off; neither is needed to feed data.
    for variable, value in (("TF_CPP_MIN_LOG_LEVEL", "2"), ("TF_ENABLE_ONEDNN_OPTS", "0")):
        os.environ.setdefault(variable, value)
    try:
        import tensorflow as tf
    except ImportError as error:
        raise DataError(f"feeding data needs TensorFlow, which cannot be imported: {error}") from None
    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)
    return tf
