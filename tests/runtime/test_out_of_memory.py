"""Errors that mean out of memory are recognized in every library, and no process waits for a thread
that died of one."""

import errno
import subprocess
import sys

import pytest

from transformer_jax.errors import is_out_of_memory

PROGRAM = """
import threading
from transformer_jax.runtime.out_of_memory import ending_without_memory

def fail():
    raise {error}

class Collected:
    def __del__(self):
        fail()

def work():
    {work}
    threading.Event().wait(60)

with ending_without_memory({problem}):
    work()
"""
IN_THREAD, IN_CALLBACK = "threading.Thread(target=fail).start()", "Collected()"
IN_LIBRARY = "__import__('ctypes').CDLL(None).abort()"


@pytest.mark.parametrize("work", [IN_THREAD, IN_CALLBACK])
@pytest.mark.parametrize("problem", ["lambda: 'no more memory; newest: 5'", "fail"])
def test_a_thread_or_a_callback_without_memory_ends_the_process(work, problem):
    code = PROGRAM.format(error="MemoryError", work=work, problem=problem)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 1
    said = "out of memory" if problem == "fail" else "no more memory; newest: 5"
    assert done.stderr == f"transformer-jax: {said}\n"


@pytest.mark.parametrize("problem", ["lambda: 'no more memory; newest: 5'", "fail"])
def test_an_abort_of_a_library_ends_the_process_with_a_sentence(problem):
    code = PROGRAM.format(error="MemoryError", work=IN_LIBRARY, problem=f"{problem}, watches_aborts=True")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    said = "out of memory" if problem == "fail" else "no more memory; newest: 5"
    assert (done.returncode, done.stderr) == (1, f"transformer-jax: a library aborted the process; perhaps {said}\n")


def chained(error: Exception) -> Exception:
    try:
        raise error
    except Exception:
        try:
            raise KeyError("of the clean-up")
        except KeyError as last:
            return last


ERRORS = [
    (MemoryError(), True),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 92592240 bytes."), True),
    (ImportError("libXau.so: failed to map segment from shared object"), True),
    (RuntimeError("can't start new thread"), True),
    (OSError(errno.ENOSPC, "No space left on device"), False),
    (ValueError("memory"), False),
]


@pytest.mark.parametrize(("error", "is_memory"), ERRORS)
def test_errors_that_mean_memory(error, is_memory):
    assert is_out_of_memory(error) is is_memory
    assert is_out_of_memory(chained(error)) is is_memory
