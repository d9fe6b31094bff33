"""Passwords never show, however they are written into an address."""

import pytest

from transformer_jax.config.secrets import masked, secrets_in

SECRET = "hunter2"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql+psycopg://me:{SECRET}@host/studies",
        f"postgresql://me:{SECRET}@host:5432/studies?sslmode=require",
        f"postgresql://me:a@b{SECRET}@host/studies",
        f"postgresql://me:a/b?{SECRET}@host/studies",
        f"postgresql://host/studies?user=me&password={SECRET}",
        f"mysql+pymysql://host/studies?user=me&passwd={SECRET}&charset=utf8",
        f"postgresql://me:other@host/studies?sslpassword={SECRET}",
        f"postgresql://:{SECRET}@host/studies",
    ],
)
def test_an_address_is_shown_without_its_password(address):
    assert SECRET not in masked(address)
    assert "host" in masked(address) and "studies" in masked(address)
    assert SECRET not in masked(f"could not connect to {address}", address)


def test_an_escaped_password_is_masked_in_both_spellings():
    address = "postgresql://me:p%40ss@host/studies"
    assert secrets_in(address) == {"p%40ss", "p@ss"}
    assert masked("FATAL: p@ss and p%40ss", address) == "FATAL: *** and ***"


@pytest.mark.parametrize("address", ["postgresql://me@host/studies", "/shared/study.journal", "a:b@c", ""])
def test_what_has_no_password_stays(address):
    assert masked(address) == address
    assert not secrets_in(address)
