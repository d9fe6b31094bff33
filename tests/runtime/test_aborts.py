"""An abort of C++ ends with a line that says what to do."""

import subprocess
import sys

ABORT = """
import os, threading, time
from transformer_jax.runtime.distributed import explain_aborts
explain_aborts("another one ended")
threading.Thread(target=os.abort).start()
time.sleep(30)
"""


def test_an_abort_in_a_thread_ends_with_the_message():
    ended = subprocess.run([sys.executable, "-c", ABORT], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (75, "another one ended\n")
