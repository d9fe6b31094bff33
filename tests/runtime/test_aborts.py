"""An abort of C++ ends with a line that says what to do."""

import signal
import subprocess
import sys

ABORT = """
import os, threading, time
from transformer_jax.runtime.aborts import explain_aborts
explain_aborts("another one ended")
threading.Thread(target=os.abort).start()
time.sleep(30)
"""


def test_an_abort_in_a_thread_ends_with_the_message():
    ended = subprocess.run([sys.executable, "-S", "-c", ABORT], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (75, "another one ended\n")


def test_an_abort_that_is_explained_no_longer_ends_as_any_other():
    code = "import os; from transformer_jax.runtime.aborts import *; explain_aborts('not this'); leave_aborts(); os.abort()"
    ended = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGABRT, "")
