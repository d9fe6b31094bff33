"""Passwords in addresses: found, and masked wherever an address or an error about it is shown."""

import re
from urllib.parse import unquote, unquote_plus

from transformer_jax.config.errors import ConfigError

MASK = "***"
# The scheme of an address, also of one written with a slash too few, or behind those of a chain (``simplecache::s3://``).
_SCHEME = re.compile(r"(?:\w[\w+.-]*::)*\w[\w+.-]*:/+")
# In the query of an address, or behind its #: password=, pwd=, token=, secret=, signature=, sig=, auth=, api_key= ...
_QUERY = re.compile(
    r"(?i)((?:[?&;]|#(?=[^@]*$))"
    r"(?:[^=&;]*(?:pass|pwd|token|secret|signature|credential)[^=&;]*|(?!sslkey=)[^=&;]*key|sig|auth)=)([^&;]*)"
)


def secrets_in(address: str) -> set[str]:
    """The passwords in ``scheme://user:PASSWORD@host/name?password=PASSWORD``, as written and decoded.

    A password that holds ``@``, ``/`` or ``?`` unescaped is found whole: it ends at the last ``@``, in a query at its end.
    """
    found = {address[start:end] for start, end in _places(address)}
    return {each for secret in found if secret for each in (secret, unquote(secret), unquote_plus(secret))}


def masked(text: str, address: str | None = None) -> str:
    """The text without the passwords in ``address``; by default the text is the address, masked where they stand in it."""
    if address is None:
        for start, end in _places(text):
            text = f"{text[:start]}{MASK}{text[end:]}"
        return text
    for secret in sorted(secrets_in(address), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def require_address(flag: str, given: str) -> None:
    """Raises ConfigError, without a password in it, at an address that the library behind it would read otherwise.

    That is one with a slash too few, which counts as a path, and one with ``@`` inside its credentials or its query: drivers
    take what follows the first for the host, and show it.
    """
    scheme = _SCHEME.match(given)
    if scheme is None:
        return
    if not scheme[0].endswith("://"):
        name = scheme[0].partition(":")[0]
        raise ConfigError(
            f"{flag}: {name}:/ is not the beginning of an address; write {name}://USER:PASSWORD@HOST/NAME"
        )
    credentials, at, _ = given[scheme.end() :].rpartition("@")
    if at and ("@" in credentials or "?" in credentials):
        raise ConfigError(
            f"{flag}: {masked(given)} has a raw @ or ? in a password; write %40 for @ and %3F for ? inside a user or password"
        )


def _places(address: str) -> list[tuple[int, int]]:
    """Start and end of each password, the last first."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return []
    queried = list(_QUERY.finditer(address, scheme.end()))
    rest = address[scheme.end() : queried[0].start() if queried else None]
    credentials, at, _ = rest.rpartition("@")
    user, colon, password = credentials.partition(":")
    start = scheme.end() + len(user) + 1
    places = [(start, start + len(password))] if at and colon else []
    return [each.span(2) for each in reversed(queried)] + places
