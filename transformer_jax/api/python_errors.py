"""Errors of the command line in the words of Python."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from transformer_jax.config import ConfigError, DataError

_FLAG = re.compile(r"(?<![\w-])--(?:config\.)?(?=[a-z])")


@contextmanager
def python_errors() -> Iterator[None]:
    """Names arguments and settings in errors as Python does: ``workdir``, not ``--workdir``; ``model.d_ff``, not
    ``--config.model.d_ff``; ``load_plugin("FILE.py")``, not ``--plugin=FILE.py``.
    """
    try:
        yield
    except (ConfigError, DataError) as error:
        message = str(error).replace("--plugin=FILE.py", 'transformer_jax.load_plugin("FILE.py")')
        error.args = (_FLAG.sub("", message), *error.args[1:])
        raise
