"""Our word vectors beside gensim's, and GloVe's beside its authors' program: speed in turn on the
same cores, then whole runs.

    python experiments/word_vectors/compare.py --data=enwiki.txt.xz --test_sets=word_similarity/questions-words.txt,word_sim \\
        --output=runs/word_vectors

Each run is a process of its own. Speed: of each side and model ``--repeats`` runs of one epoch,
ours and the other's in turn, timed without reading the text, imports and compiling; the median.
Quality: a run of ``--epochs`` each. ``--models=glove`` needs ``--glove_sources``; see
glove_program.py. Writes table.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

MODELS = ("skip_gram", "cbow")
OTHER_SIDES = {"glove": "program"}
"""What ours is compared with, if it is not gensim."""
RECIPE = "configs/word_vectors.py"
WORKERS = 2


def settings(name: str, data: str, updates: int, others: Sequence[tuple[str, str]] = ()):
    """The recipe of a model, for this text, with other settings changed too."""
    from transformer_jax.config import apply_overrides, from_dict, load_recipe

    changed = [("data.train", data), ("training.num_updates", str(updates)), ("mesh.data", "1"), *others]
    return from_dict(apply_overrides(load_recipe(f"{RECIPE}:{name}"), changed))


def ours(name: str, data: str, epochs: int, others: Sequence[tuple[str, str]] = ()) -> dict:
    """Words a second and CPU seconds of our loop's data and step, and the vectors."""
    import jax

    from transformer_jax.config import hyperparameters_of
    from transformer_jax.data.tensorflow_runtime import start_tensorflow
    from transformer_jax.tasks.task import task_class
    from transformer_jax.tools.word_vectors.task.word_vector_objective import vectors_of
    from transformer_jax.training.sharding import make_mesh, put_batch, put_hyperparameters
    from transformer_jax.training.update import Update

    config = settings(name, data, 10, others)
    started, cpu_started = time.perf_counter(), time.process_time()
    mesh, tokenizers = make_mesh(config.mesh, jax.devices()[:1]), task_class(config.task).new_tokenizers(config)
    planned = task_class(config.task)(config, tokenizers, mesh).training_data()
    counting = {
        "prepare_seconds": time.perf_counter() - started,
        "prepare_cpu_seconds": time.process_time() - cpu_started,
    }
    updates = round(epochs * planned.blocks.updates_per_epoch)
    config = settings(name, data, updates, others)
    task = task_class(config.task)(config, tokenizers, mesh)
    update = Update(config, task.objective.loss, task.objective.init_params, mesh, task.objective.update_rule)
    state, hyperparameters = (
        update.initial_state(config.seed),
        put_hyperparameters(hyperparameters_of(config), mesh),
    )
    step = update.lower(put_batch(next(planned.batches(0)), mesh)).compile()
    start_tensorflow()
    started, cpu_started, before = time.perf_counter(), time.process_time(), None
    for batch, _ in zip(planned.batches(0), range(updates), strict=False):
        state, metrics = step(state, put_batch(batch, mesh), hyperparameters)
        if before is not None:
            before.finite.block_until_ready()
        before = metrics
    jax.block_until_ready(state)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    words = planned.store.num_tokens - planned.store.num_documents
    counting |= {key: float(value) for key, value in planned.blocks.report()[0].items() if key == "pairs"}
    return (
        measured(words * epochs, seconds, cpu)
        | counting
        | {"vectors": vectors_of(state.params, config, tokenizers.source)}
    )


def written_text(name: str, data: str, folder: Path) -> Path:
    """The words of our training split, a document a line, for a program that reads such a file."""
    from transformer_jax.data.documents import open_documents
    from transformer_jax.data.tokenizers.listed import LowerWordTokenizer

    text, config, split = folder / "train.txt", settings(name, data, 10), LowerWordTokenizer([]).split
    if not text.exists():
        with open(text, "w", encoding="utf-8") as file:
            for document in open_documents(config.data, config.data_seed).documents("train"):
                file.write(" ".join(split(document.text)) + "\n")
    return text


def gensim(name: str, data: str, epochs: int, folder: Path, seed: int) -> dict:
    """The same of gensim with as many workers as cores, on the same words of the same split."""
    from gensim.models import Word2Vec

    text, config = written_text(name, data, folder), settings(name, data, 10)
    model = config.model
    trained = Word2Vec(
        vector_size=model.d_model,
        window=model.window,
        min_count=config.tokenizer.min_count,
        sample=config.data.subsample,
        sg=int(model.kind == "skip_gram"),
        negative=model.negatives,
        alpha=config.optimizer.learning_rate,
        workers=WORKERS,
        epochs=epochs,
        seed=seed,
    )
    trained.build_vocab(corpus_file=str(text))
    words = trained.corpus_total_words
    started, cpu_started = time.perf_counter(), time.process_time()
    trained.train(corpus_file=str(text), total_examples=trained.corpus_count, total_words=words, epochs=epochs)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    return measured(words * epochs, seconds, cpu) | {"vectors": trained.wv}


def program(name: str, data: str, epochs: int, folder: Path, sources: str) -> dict:
    """The same of the program of GloVe's authors, on the same words."""
    import glove_program

    from transformer_jax.tools.word_vectors.keyed_vectors import read_vectors

    text, config = written_text(name, data, folder), settings(name, data, 10)
    words = len(text.read_bytes().split())
    found = glove_program.train(
        Path(sources),
        text,
        folder,
        min_count=config.tokenizer.min_count,
        window=config.model.window,
        width=config.model.d_model,
        x_max=config.model.x_max,
        epochs=epochs,
        workers=WORKERS,
    )
    return measured(words * epochs, found.seconds, found.cpu_seconds) | {
        "prepare_seconds": found.counting_seconds,
        "prepare_cpu_seconds": found.counting_cpu_seconds,
        "pairs": float(found.pairs),
        "vectors": read_vectors(found.vectors, "glove"),
    }


def measured(words: float, seconds: float, cpu: float) -> dict:
    """Raw words, before subsampling, of all epochs; wall and CPU seconds."""
    return {"words_per_second": words / seconds, "seconds": seconds, "cpu_seconds": cpu}


def one(arguments: argparse.Namespace) -> None:
    """One run of one side; prints a line of JSON."""
    from transformer_jax.runtime.startup import keep_freed_memory

    # As every command does.
    keep_freed_memory()
    side, name = arguments.one.split(":")
    folder = Path(arguments.output)
    if side == "ours":
        with tempfile.TemporaryDirectory() as cache:
            # An empty cache: the C program has none either.
            others = [("seed", str(arguments.seed))] + [("data.cache_directory", cache)] * (name in OTHER_SIDES)
            found = ours(name, arguments.data, arguments.epochs, others)
    elif side == "program":
        found = program(name, arguments.data, arguments.epochs, folder, arguments.glove_sources)
    else:
        found = gensim(name, arguments.data, arguments.epochs, folder, arguments.seed)
    vectors = found.pop("vectors")
    if arguments.test_sets:
        from transformer_jax.tools.word_vectors.vector_evaluation import evaluate_vectors, read_test_sets

        found |= evaluate_vectors(vectors, read_test_sets(arguments.test_sets.split(","))).headline()
    print(json.dumps(found))


def run(arguments: argparse.Namespace, side: str, name: str, epochs: int, test_sets: str) -> dict:
    """A run in a process of its own."""
    command = [sys.executable, __file__, f"--one={side}:{name}", f"--data={arguments.data}", f"--epochs={epochs}"]
    command += [
        f"--output={arguments.output}",
        f"--test_sets={test_sets}",
        f"--glove_sources={arguments.glove_sources}",
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(arguments: argparse.Namespace) -> dict:
    """All runs, ours and the other's in turn; the table is written as they come."""
    results: dict = {}
    for name in arguments.models.split(","):
        speeds: dict = {"ours": [], OTHER_SIDES.get(name, "gensim"): []}
        for _ in range(arguments.repeats):
            for side, found in speeds.items():
                found.append(run(arguments, side, name, 1, ""))
        for side, found in speeds.items():
            middle = {key: statistics.median(each[key] for each in found) for key in found[0]}
            results[f"{name} {side}"] = {"one epoch": middle}
            if arguments.test_sets:
                whole = run(arguments, side, name, arguments.epochs, arguments.test_sets)
                results[f"{name} {side}"][f"{arguments.epochs} epochs"] = whole
            (Path(arguments.output) / "table.md").write_text(table(results))
    return results


def table(results: dict) -> str:
    """The results as Markdown."""
    lines = ["| run | words/s | CPU s an epoch | analogies | Spearman |", "|---|---:|---:|---:|---|"]
    for name, found in results.items():
        speed, whole = found["one epoch"], next((found[key] for key in found if key != "one epoch"), {})
        ranks = ", ".join(
            f"{key.removeprefix('spearman_')} {value:.3f}" for key, value in whole.items() if "spearman" in key
        )
        analogies = f"{100 * whole['analogies']:.1f}" if "analogies" in whole else "-"
        lines.append(
            f"| {name} | {speed['words_per_second']:,.0f} | {speed['cpu_seconds']:.1f} | {analogies} | {ranks} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text, a document a line")
    parser.add_argument("--test_sets", default="", help="files or folders, separated by commas; without, speed alone")
    parser.add_argument("--output", required=True, help="folder for the results")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", default="", help="a single run, of ours, gensim or program: side:model")
    parser.add_argument("--glove_sources", default="", help="folder with the C sources of GloVe")
    parser.add_argument("--seed", type=int, default=0, help="of a single run")
    arguments = parser.parse_args()
    Path(arguments.output).mkdir(parents=True, exist_ok=True)
    if arguments.one:
        one(arguments)
        return
    print(table(compare(arguments)))


if __name__ == "__main__":
    main()
