"""The study of modifications: its ideas exist, and its table shows what the duels found."""

from transformer_jax.tools.study.contenders import read_contenders


def test_its_ideas_fit_their_recipes(script):
    run = script("run", "modifications")
    for study in run.STUDIES.values():
        stated = [tuple(each.split("=", 1)) for each in study.settings]
        assert len(read_contenders(study.recipe, stated, study.ideas)) == 1 + len(study.ideas)
    assert len(run.STUDIES["transformer"].ideas) >= 20
