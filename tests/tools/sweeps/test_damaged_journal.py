"""A study whose journal was cut short, removed or damaged goes on, or says so."""

import pytest
from optuna.trial import TrialState
from tools.sweeps.studies import GRID

from transformer_jax.config import ConfigError
from transformer_jax.tools.sweeps.storage import StudyLost, open_storage
from transformer_jax.tools.sweeps.study import SharedStudy


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "study.journal"


def joined(journal) -> SharedStudy:
    return SharedStudy(GRID, open_storage(str(journal)), "s")


def states(journal) -> list[TrialState]:
    return [trial.state for trial in joined(journal).trials()]


def test_a_line_that_a_kill_cut_short_costs_the_study_nothing(journal):
    running = joined(journal)
    with journal.open("ab") as file:
        file.write(b'{"op_code":8,"trial_id":0,"user')
    assert running.claim().number == 0
    assert joined(journal).claim().number == 1
    assert states(journal) == [TrialState.RUNNING] * 2 + [TrialState.WAITING] * 2


def test_a_journal_that_is_removed_while_in_use_is_not_made_anew(journal):
    study = joined(journal)
    kept = journal.rename(journal.with_name("kept"))
    with pytest.raises(FileNotFoundError):
        study.study.set_user_attr("note", 1)
    assert not journal.exists()
    kept.rename(journal)
    assert study.claim().number == 0


def test_a_journal_that_is_cut_short_while_in_use_is_refused(journal):
    study = joined(journal)
    journal.write_bytes(journal.read_bytes()[:100])
    with pytest.raises(StudyLost, match="cut short while in use"):
        study.claim()


@pytest.mark.parametrize("damaged", [b"op_code", b"study_id", b"study_name", b"{"])
def test_a_damaged_journal_is_refused_with_a_sentence(journal, damaged):
    joined(journal)
    content = journal.read_bytes()
    at = content.index(damaged)
    journal.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
    with pytest.raises(ConfigError, match="not the journal of a study, or damaged"):
        joined(journal)
