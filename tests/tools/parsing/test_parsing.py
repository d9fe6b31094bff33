import json
import re

import jax
import pytest
from run_settings import tiny_settings
from run_steps import on_devices, write_untrained

import transformer_jax
from transformer_jax.__main__ import main
from transformer_jax.config import ConfigError, DataError, from_dict
from transformer_jax.data.corpora import open_corpus
from transformer_jax.data.sentence_pairs import digest
from transformer_jax.data.text_files import hash_file
from transformer_jax.data.tokenizers import tokenizer_from_bytes
from transformer_jax.run_directory.layout import ChosenRun
from transformer_jax.tasks import trained_run
from transformer_jax.tasks.trained_run import open_trained
from transformer_jax.tasks.translation.translator import translation_of
from transformer_jax.tools.parsing.corpus import _roots, _survey
from transformer_jax.tools.parsing.parsing_settings import TreebankConfig
from transformer_jax.tools.parsing.parsing_task import ParsingTask
from transformer_jax.tools.parsing.tokenizers import SentenceTokenizer, WordClassTokenizer, class_of, word_starts
from transformer_jax.tools.parsing.trees import trees_of_texts
from transformer_jax.training.sharding import make_mesh

TREES = "(S (NP (NNP Ann)) (VP (VBZ sleeps)) (. .))\n( (S (NP (-NONE- *)) (VP (VB Go))) )\n"


def treebank(folder, **settings):
    return open_corpus(TreebankConfig(source="treebank", directory=str(folder), **settings), 0)


def parsing_settings(cache, **decoding):
    settings = tiny_settings(cache)
    settings |= {"task": "parsing", "tokenizer": {"kind": "word_class", "vocabulary_size": 400, "joint": False}}
    settings["data"] |= {"source": "generated_treebank", "max_target_tokens": 63}
    settings["model"]["tying"] = "output"
    settings["decoding"] |= {"max_extra_tokens": 40} | decoding
    return settings


def test_a_split_is_a_file_a_folder_or_several_folders(tmp_path):
    (tmp_path / "train.mrg").write_text(TREES)
    for folder in ("02", "03/a", "22"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "wsj_1.mrg").write_text(TREES)
        (tmp_path / folder / "wsj_1.mrg~").write_text(TREES)
    corpus = treebank(tmp_path, linearization="in_order", part_of_speech=True)
    assert [pair.target for pair in corpus.pairs("train")] == ["NNP (NP ) (S VBZ (VP ) . )", "VB (VP ) (S )"]
    assert corpus.removed("train")["traces"] == 1
    assert [corpus.count(split) for split in ("train", "02-03", "22")] == [2, 4, 2]
    for name in ("wsj_1.mrg.xz", "wsj_2.mrg.gz", "wsj_2.mrg.xz"):
        (tmp_path / "02" / name).touch()
    assert [file.name for file in corpus.files("02")] == ["wsj_1.mrg", "wsj_2.mrg.gz"]
    assert corpus.fingerprint("train") != treebank(tmp_path).fingerprint("train")
    with pytest.raises(DataError, match="no split '04'; expected 04.mrg"):
        corpus.count("04")
    with pytest.raises(DataError, match="split '02-05' lacks .mrg files in the folders 04, 05$"):
        corpus.count("02-05")
    (tmp_path / "22/wsj_1.mrg").write_text("((-NONE- *))")
    with pytest.raises(DataError, match="wsj_1.mrg: no tree with words"):
        treebank(tmp_path / "22/..").count("22")


def test_the_generated_treebank_has_one_tree_for_a_sentence():
    corpus = open_corpus(TreebankConfig(generated_pairs=300), 0)
    train, validation, test = (set(corpus.pairs(split)) for split in ("train", "validation", "test"))
    assert len({pair.source for pair in train | test}) == len(train | test) > 300
    assert not {pair.source for pair in train} & {pair.source for pair in validation}
    with pytest.raises(DataError, match="no split 'tset'.*did you mean 'test'"):
        next(corpus.trees("tset"))


def test_rare_words_are_classes():
    classes = {"Smiths": "unk-cap-s", "3.5-point": "unk-num-dash", "IBM": "unk-caps", "walking": "unk-ing"}
    assert {word: class_of(word) for word in classes} == classes
    tokenizer = WordClassTokenizer.train(["the Smiths walk", "the Browns talk"], 100)
    again = tokenizer_from_bytes("word_class", tokenizer.to_bytes())
    assert again.pieces(again.encode("the Jones- Greens xx")) == ["the", "<unk>", "unk-cap-s", "unk"]
    assert word_starts(again)[3:] == [True] * (again.vocabulary_size - 3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parsing")
    config = from_dict(parsing_settings(folder / "cache"))
    with on_devices(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(trained_run, "make_mesh", lambda mesh: make_mesh(mesh, jax.devices()[:1]))
        write_untrained(config, folder / "run")
        yield ChosenRun(str(folder / "run"), config, "last")


@pytest.fixture(scope="module")
def trained(run):
    return open_trained(run)


def test_an_untrained_parser_writes_trees_over_the_words(run, trained):
    evaluation = trained.evaluate("test", limit=6)
    assert evaluation.metrics["repaired"] == 0.0 and 0 <= evaluation.metrics["f1"] < 50
    assert json.loads(json.dumps(evaluation.to_json()))["scores"]["f1"] == evaluation.metrics["f1"]
    assert [row[0] for row in evaluation.rows()][:2] == ["split", "F1"]
    assert all(output.startswith("(") for output in evaluation.outputs)


@pytest.mark.slow
def test_symbols_of_a_tree_are_scored_as_the_search_scores_them(run, trained):
    (best, _), (empty,) = trained.task.parse(trained.params, ["Ann ( sleeps )", " "], num_results=2)
    assert not best.repairs
    assert " ".join(part.rstrip(")") for part in best.text.split() if part[0] != "(") == "Ann -LRB- sleeps -RRB-"
    assert empty.text == ""
    # The search reports the model's own score, constrained or not.
    ((scored,),) = [trained.task.score_texts(trained.params, ["Ann -LRB- sleeps -RRB-"], [best.symbols])]
    penalty = ((5 + len(scored.log_probs)) / 6) ** run.config.decoding.length_penalty
    assert scored.log_prob / penalty == pytest.approx(best.score, abs=1e-4)
    assert trained.task.attention_of(trained.params, "Ann sleeps", None).of("cross")


@pytest.mark.slow
def test_python_parses_as_the_command(run, trained):
    loaded = transformer_jax.load(run.workdir, "last")
    vars(loaded)["_trained"] = trained
    with pytest.warns(UserWarning, match="1 of 2 texts has .* never saw in training .*: -LRB- -RRB-"):
        ((best, _), (empty,)) = loaded.parse(["Ann ( sleeps )", ""], n_best=2)
    assert "-LRB-" in best.text and best.symbols and empty.text == ""
    with pytest.raises(ConfigError, match="^n_best: 99 is more than"):
        loaded.parse(["Ann sleeps"], n_best=99)


@pytest.mark.slow
def test_without_the_constraint_outputs_are_repaired_and_counted(trained, tmp_path):
    config = from_dict(parsing_settings(tmp_path, constrained=False))
    evaluation = ParsingTask(config, trained.tokenizers, trained.mesh).evaluate(trained.params, "test", limit=6)
    assert sum(evaluation.report.repairs.values()) >= evaluation.report.repaired > 0
    assert all(
        pair.source.split()[0] in output for pair, output in zip(evaluation.pairs, evaluation.outputs, strict=True)
    )


@pytest.mark.slow
def test_a_text_is_scored_against_trees(run, trained, tmp_path, capsys):
    sentences, trees = tmp_path / "sentences.txt", tmp_path / "trees.mrg"
    sentences.write_text("Ann sleeps .\n")
    trees.write_text(TREES.splitlines()[0])
    text = ParsingTask.open_text(run.config, str(sentences), [str(trees)])
    assert trained.task.evaluate_text(trained.params, text, "news").report.num_sentences == 1
    sentences.write_text("Ann walks .\n")
    with pytest.raises(DataError, match="trees.mrg, line 1: a tree of other words"):
        ParsingTask.open_text(run.config, str(sentences), [str(trees)])
    sentences.write_text("Ann walks .\n\n")
    assert main(["parse", run.workdir, "--checkpoint=last", f"--source={sentences}"]) == 0
    tree, empty = capsys.readouterr().out.splitlines()
    assert (tree[0], empty) == ("(", "")
    assert transformer_jax.load(run.workdir, "last").parse("Ann walks .") == tree


def test_sentences_without_trees_are_left_out_and_all_others_read(run, trained, tmp_path, capsys):
    sentences, trees = tmp_path / "sentences.txt", tmp_path / "trees.mrg"
    # As parse writes them: an empty line has no tree.
    sentences.write_text("\n\u200b\n" + "Ann sleeps .\n" * 200, encoding="utf-8")
    trees.write_text("\n\n" + f"{TREES.splitlines()[0]}\n" * 200)
    text = ParsingTask.open_text(run.config, str(sentences), [str(trees)])
    assert (len(text.sources), set(text.sources)) == (200, {"Ann sleeps ."})
    assert (
        capsys.readouterr().err
        == f"{sentences}: 2 empty lines left out, which have no tree. The others are counted without them.\n"
    )
    trees.write_text("(S (NP (NNP Ann)))\n")
    with pytest.raises(DataError, match="trees.mrg: 1 trees but 202 sentences"):
        ParsingTask.open_text(run.config, str(sentences), [str(trees)])
    for empty in ("", "\n"):
        sentences.write_text(empty)
        trees.write_text(empty)
        with pytest.raises(DataError, match="sentences.txt: no sentence; expected one a line"):
            ParsingTask.open_text(run.config, str(sentences), [str(trees)])


def test_symbols_of_a_tree_may_repeat_and_cut_trees_are_counted(trained):
    symbols = trained.task.tokenizers.target.encode("XX " * 20)
    for limit, remarks in ((40, ()), (20, ("cut",))):
        translation = translation_of(symbols, 0.0, trained.task.tokenizers, [5, 6], limit)
        assert translation.remarks == remarks
    evaluation = trained.evaluate("test", limit=3)
    assert len(evaluation.remarks) == 3


def test_the_outline_of_a_tree_knows_the_symbol_of_every_node(trained):
    assert trained.task.outline("a dog", "(NP <unk> XX XX )NP")[1:] == [(1, "a", 2), (1, "dog", 3)]
    outline = trained.task.outline("a dog barks !", "(S (NP XX XX )NP (VP XX )VP )S")
    assert outline[:3] == [(0, "S", 0), (1, "NP", 1), (2, "a", 2)]
    assert outline[4:] == [(1, "VP", 5), (2, "barks", 6), (1, "!", -1)]


def test_every_command_reads_a_sentence_as_parse_does(run, trained, tmp_path):
    sentence, form = " Ann\t (sleeps)  1/2\u00a0{ ", "Ann -LRB-sleeps-RRB- 1/2\u00a0{"
    tokenizer = trained.tokenizers.source
    assert tokenizer.encode(sentence) == tokenizer.encode(form) == tokenizer.encode_batch([sentence])[0]
    assert len(tokenizer.encode(sentence)) == 3 == len(tokenizer.surfaces(sentence))
    assert tokenizer.surfaces(sentence)[1] == b"-LRB-sleeps-RRB-"
    (tmp_path / "text").write_text(f"{sentence}\n", encoding="utf-8")
    (tmp_path / "trees").write_text("(VROOT (S (NNP Ann) (X -LRB-sleeps-RRB-) (X 1\\/2\u00a0-LCB-)))", encoding="utf-8")
    text = ParsingTask.open_text(run.config, str(tmp_path / "text"), [str(tmp_path / "trees")])
    assert text.references == [["(S (NNP Ann) (X -LRB-sleeps-RRB-) (X 1\\/2\u00a0-LCB-))"]]
    assert trained.task.evaluate_text(trained.params, text, "news").report.scores.recall in (0, 100)
    ((parsed,),) = trained.task.parse(trained.params, [sentence])
    assert trees_of_texts([parsed.text])[0].sentence == form


def test_forms_of_the_treebank_are_used_where_its_words_have_them():
    with_forms = SentenceTokenizer(WordClassTokenizer([r"1\/2", "-LCB-", "a"]))
    assert with_forms.encode(r"1/2 1\/2 { -LCB- a") == [4, 4, 5, 5, 6]
    # Only the backslash of a form belongs to it.
    assert SentenceTokenizer(WordClassTokenizer([r"\-LRB-", r"\-LCB-", "-LCB-"])).encode(r"\( \{") == [4, 5]
    assert SentenceTokenizer(WordClassTokenizer(["1/2", "{"])).encode("1/2 {") == [4, 5]


def test_removed_roots_are_counted_and_part_of_the_fingerprint(tmp_path):
    prints = {}
    for root in ("{}", "( {})", "(TOP {})", "(VROOT {})", "(TOP (ROOT {}))", "(Wurzel {})"):
        (tmp_path / "train.mrg").write_text("".join(f"{root.format(tree)}\n" for tree in TREES.splitlines()[:1] * 3))
        corpus = treebank(tmp_path)
        _survey.cache_clear(), _roots.cache_clear()
        assert [str(tree) for tree in corpus.trees("train")] == TREES.splitlines()[:1] * 3
        removed = {name for name in corpus.removed("train") if name.startswith("roots ")}
        assert removed == {f"roots {label}" for label in re.findall(r"\w+", root)}
        prints[root] = corpus.fingerprint("train") == digest([corpus.form, hash_file(tmp_path / "train.mrg")])
    # Earlier versions removed one root, so that their tokens can be reused.
    assert prints == {
        "{}": True,
        "( {})": True,
        "(TOP {})": True,
        "(VROOT {})": False,
        "(TOP (ROOT {}))": False,
        "(Wurzel {})": False,
    }
