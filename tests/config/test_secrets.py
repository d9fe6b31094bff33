"""Passwords never show, however they are written into an address."""

import pytest

from transformer_jax.config import ConfigError
from transformer_jax.config.secrets import masked, require_address, secrets_in
from transformer_jax.tools.sweeps.storage import storage_url

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
        f"s3://host/studies?X-Amz-Signature={SECRET}",
        f"az://host/studies?sig={SECRET}",
        f"gs://host/studies#token={SECRET}",
        f"az://host/studies?AccountKey={SECRET}",
        f"s3://host/studies?api-key={SECRET}&a=b",
        f"postgresql://me:{SECRET}#2@host/studies?sslpassword=x",
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


@pytest.mark.parametrize(
    "address", ["postgresql://me@host/studies", "/shared/study.journal", "a:b@c", "", "s3://a/b?design=3&sslkey=x"]
)
def test_what_has_no_password_stays(address):
    assert masked(address) == address
    assert not secrets_in(address)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://localhost:1/db?password=a@{SECRET}", "postgresql://localhost:1/db?password=***"),
        (f"postgresql://h/db?password=h&user={SECRET[:1]}", "postgresql://h/db?password=***&user=h"),
        (f"postgresql:/u:{SECRET}@host/db", "postgresql:/u:***@host/db"),
        ("postgresql://me:e@host/studies", "postgresql://me:***@host/studies"),
    ],
)
def test_a_password_is_masked_where_it_stands_and_nowhere_else(address, shown):
    assert masked(address) == shown


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        (f"postgresql+psycopg://u:p@{SECRET}@localhost:1/db", "write %40"),
        (f"postgresql+psycopg://u:p@ss:{SECRET}@localhost/db", "write %40"),
        (f"postgresql+psycopg://localhost:1/db?password=a@{SECRET}", "write %40"),
        (f"postgresql:/u:{SECRET}@host/db", "write postgresql://USER"),
    ],
)
def test_an_address_that_a_driver_would_read_otherwise_is_refused_before(address, remedy, tmp_path):
    with pytest.raises(ConfigError, match=remedy) as raised:
        require_address("--storage", address)
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match=remedy):
        storage_url(address, tmp_path)


@pytest.mark.parametrize("given", ["postgresql://me:p%40ss@host/studies", "/shared/a:b@c.journal", "study.journal", ""])
def test_other_addresses_and_paths_pass(given):
    require_address("--storage", given)
