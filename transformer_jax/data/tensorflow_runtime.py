"""The import of TensorFlow, which only feeds data."""

import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from types import ModuleType

from transformer_jax.config import DataError


def require_tensorflow() -> None:
    """Raise DataError if TensorFlow is not installed, without importing it."""
    if find_spec("tensorflow") is None:
        raise DataError("feeding data needs TensorFlow: pip install tensorflow-cpu")


def start_tensorflow() -> ModuleType:
    """Return TensorFlow with all accelerators hidden, so that it does not reserve their memory.

    Raises DataError if it cannot be imported.
    """
    return tensorflow_being_imported().result()


@cache
def tensorflow_being_imported() -> Future[ModuleType]:
    """Start the import in a thread, which takes seconds, and return its future; once a process.

    If several threads imported TensorFlow at once, one of them could get a partial module. The
    interpreter waits for the thread when it exits: it must not exit while TensorFlow loads.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="tensorflow")
    importing = pool.submit(_import_without_accelerators)
    pool.shutdown(wait=False)
    return importing


def _import_without_accelerators() -> ModuleType:
    require_tensorflow()
    # No start-up messages, and no oneDNN.
    for variable, value in (("TF_CPP_MIN_LOG_LEVEL", "2"), ("TF_ENABLE_ONEDNN_OPTS", "0")):
        os.environ.setdefault(variable, value)
    # TensorFlow would import Keras, which takes as long again and is not used here.
    if hides_keras := "keras" not in sys.modules:
        sys.modules["keras"] = None  # type: ignore[assignment]
    try:
        import tensorflow as tf
    except ImportError as error:
        raise DataError(f"feeding data needs TensorFlow, but its import fails: {error}") from None
    finally:
        if hides_keras:
            sys.modules.pop("keras", None)
    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)
    return tf
