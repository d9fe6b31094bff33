"""Every setting is explained, and the page that lists them is not stale."""

from pathlib import Path

import pytest

from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError
from transformer_jax.config.explain import explained, settings_page
from transformer_jax.config.keys import leaf_keys
from transformer_jax.config.meanings import MEANINGS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_setting_has_a_meaning_and_every_meaning_a_setting():
    keys = {key for key, _ in leaf_keys()}
    assert keys - set(MEANINGS) == set(), "write what they mean in config/meanings.py"
    assert set(MEANINGS) - keys == set()


def test_an_explanation_has_choices_defaults_and_readers(capsys):
    assert main(["config", "--explain", "model.normalization"]) == 0
    printed = capsys.readouterr().out
    assert "choices: post, pre\n" in printed
    assert "default: post  [translation transformer]\n  default: pre  [language_model]" in printed
    kind = explained("model.kind").by("choices")
    assert kind[0] == ("transformer, rnn", "translation")
    with pytest.raises(ConfigError, match=r"did you mean model\.normalization"):
        explained("model.normalisation")


def test_the_page_of_settings_is_not_stale():
    page = (DOCS / "settings.md").read_text(encoding="utf-8")
    assert page == settings_page(), "transformer-jax config --list --markdown > docs/settings.md"


def test_the_list_has_every_setting(capsys):
    assert main(["config", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {key} " in printed for key, _ in leaf_keys())
