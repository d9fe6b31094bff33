"""Runs a command and says how much processor time it took, and loudly when that is more than the
suite may take.

    python tests/cpu_budget.py COMMAND [ARGUMENT ...]

Seconds are user + system of the command and all processes that it started, which neighbors on the
machine hardly change. The exit status is the command's: machines differ, so a slow one is no
failure.
"""

import resource
import subprocess
import sys
from pathlib import Path

# With the compiled programs of an earlier run in .cache/tests, and without.
CACHED, FIRST = 330, 550


def main() -> int:
    is_cached = any(Path(__file__).resolve().parents[1].glob(".cache/tests/*/*"))
    budget = CACHED if is_cached else FIRST
    status = subprocess.call(sys.argv[1:])
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = usage.ru_utime + usage.ru_stime
    cache = "with compiled programs of an earlier run" if is_cached else "nothing compiled before"
    print(f"CPU: {total:.0f} s (user {usage.ru_utime:.0f}, system {usage.ru_stime:.0f}), {cache}; budget {budget} s")
    if total > budget:
        print(f"{'!' * 78}\n!!! OVER BUDGET: {total:.0f} of {budget} CPU seconds. See --durations=25.\n{'!' * 78}")
    return status


if __name__ == "__main__":
    sys.exit(main())
