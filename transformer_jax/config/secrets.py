"""Passwords in addresses: found, and masked wherever an address or an error about it is shown."""

import re
from urllib.parse import unquote

MASK = "***"
# In the query of an address: password=, passwd=, pwd=, sslpassword=, token=, secret_key= ...
_QUERY = re.compile(r"(?i)([?&;][^=&;]*(?:pass|pwd|token|secret)[^=&;]*=)([^&;]*)")


def secrets_in(address: str) -> set[str]:
    """The passwords in ``scheme://user:PASSWORD@host/name?password=PASSWORD``, as written and decoded.

    A password that holds ``@``, ``/`` or ``?`` unescaped is found whole: it ends at the last ``@``.
    """
    _, separator, rest = address.partition("://")
    if not separator:
        return set()
    found = {value for _, value in _QUERY.findall(rest)}
    credentials, at, _ = rest.rpartition("@")
    if at and ":" in credentials:
        found.add(credentials.partition(":")[2])
    return {each for secret in found if secret for each in (secret, unquote(secret))}


def masked(text: str, address: str | None = None) -> str:
    """The text without the passwords in ``address``; by default the text is the address."""
    for secret in sorted(secrets_in(text if address is None else address), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
