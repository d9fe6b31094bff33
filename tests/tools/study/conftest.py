"""Run directories made of files alone: what a run and an evaluation leave, without either."""

import json

import pytest
from shared_run import run

from transformer_jax.config import DecodingConfig, from_dict, to_json
from transformer_jax.evaluation.scores import EvaluationReport, score_translations
from transformer_jax.tasks.saved_evaluations import ScoredCheckpoint, save_evaluation
from transformer_jax.tasks.translation.evaluator import TranslationEvaluation

__all__ = ["run"]


@pytest.fixture
def make_run(tmp_path):
    """Writes a run directory below ``tmp_path``: its settings, records of metrics, and what a kill
    left of the last one."""

    def make(name, settings=None, records=(), unfinished=""):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(to_json(from_dict(settings or {}))))
        if records:
            lines = "".join(json.dumps(record) + "\n" for record in records)
            (folder / "metrics.jsonl").write_text(lines + unfinished)
        return folder

    return make


@pytest.fixture
def save_translations():
    """Writes what evaluate would."""

    def save(run, split, step, hypotheses, references):
        report = EvaluationReport(
            split=split,
            scores=score_translations(hypotheses, references),
            loss=1.0,
            perplexity=2.7,
            tokens_per_second=10.0,
            num_sentences=len(hypotheses),
            decoding=DecodingConfig(),
            compute_dtype="float32",
        )
        scored = ScoredCheckpoint(TranslationEvaluation(report, hypotheses), step)
        return save_evaluation(run / f"evaluation-{split}-{step}", scored)

    return save
