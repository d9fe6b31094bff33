import pytest

from transformer_jax.config import DataConfig, DataError
from transformer_jax.data.corpora import open_corpus

pytest.importorskip("tensorflow_datasets")

PAIRS = {"train": [("a b", "A B"), ("c\u2028d", "C"), ("", "E")], "test": [("f", "F")]}


@pytest.fixture(scope="module")
def tfds():
    from transformer_jax.data.tfds_source import _import_tfds

    return _import_tfds()


def make_builder(tfds, name, features, examples):
    """A tfds builder class as of a user: ``name`` in camel case, split -> dictionaries."""

    def generate(self, split):
        yield from enumerate(examples[split])

    def info(self):
        whole = tfds.features.FeaturesDict(features) if type(features) is dict else features
        return self.dataset_info_from_configs(features=whole)

    def split_generators(self, manager):
        return {split: self._generate_examples(split) for split in examples}

    methods = {"_info": info, "_split_generators": split_generators, "_generate_examples": generate}
    attributes = {"VERSION": tfds.core.Version("1.0.0"), "pkg_dir_path": None, "__module__": __name__}
    return type(name, (tfds.core.GeneratorBasedBuilder,), methods | attributes)


@pytest.fixture(scope="module")
def data_dir(tfds, tmp_path_factory):
    """A folder with three data sets, prepared by tfds."""
    folder = tmp_path_factory.mktemp("tfds")
    fixed = {split: [{"en": source, "de": target} for source, target in pairs] for split, pairs in PAIRS.items()}
    several = {"en": "a", "de": "A", "fr": "b"}, {"en": "c", "fr": "d"}, {"de": "E", "en": "e"}
    nested = {"train": [{"texts": item} for item in several]}
    sets = {
        "TinyTranslate": (tfds.features.Translation(["en", "de"]), fixed),
        "ManyTranslate": ({"texts": tfds.features.TranslationVariableLanguages(["en", "de", "fr"])}, nested),
        "NoTranslate": ({"text": tfds.features.Text()}, {"train": [{"text": "a"}]}),
    }
    for name, (features, examples) in sets.items():
        make_builder(tfds, name, features, examples)(data_dir=folder).download_and_prepare()
    return folder


def corpus(name, directory, source="en", target="de"):
    languages = {"source_language": source, "target_language": target}
    return open_corpus(DataConfig(source="tfds", name=name, directory=str(directory), **languages), 0)


def test_by_name(data_dir):
    pairs = corpus("tiny_translate", data_dir)
    assert sorted(pairs.pairs("train")) == sorted(PAIRS["train"])
    assert list(pairs.pairs("test")) == PAIRS["test"]
    assert list(pairs.pairs("train")) == list(pairs.pairs("train"))
    assert len(list(pairs.pairs("train[:2]+test"))) == 3
    assert list(corpus("tiny_translate", data_dir, "de", "en").pairs("test")) == [("F", "f")]
    # Of variable languages: the examples that have both.
    assert sorted(corpus("many_translate", data_dir).pairs("train")) == [("a", "A"), ("e", "E")]
    assert sorted(corpus("many_translate", data_dir, "fr", "en").pairs("train")) == [("b", "a"), ("d", "c")]


def test_errors_list_the_choices(data_dir):
    for name, target, split, message in (
        ("tiny_translate", "dk", "train", "has no language 'dk'; it has de, en"),
        ("tiny_translate", "de", "tran", "has no split 'tran'; it has test, train; did you mean 'train'"),
        ("wmt14_translat/de-en", "de", "train", "no data set 'wmt14_translat/de-en'; did you mean 'wmt14_translate'"),
        ("wmt14_translate/de-xx", "de", "train", r"cannot be opened.*configurations: cs-en, de-en"),
        ("no_translate", "de", "train", "no_translate is not a translation data set; it has text"),
    ):
        with pytest.raises(DataError, match=message):
            list(corpus(name, data_dir, target=target).pairs(split))


@pytest.mark.parametrize("name", ["huggingface:glue", "me:tiny_translate", "a/b:c"])
def test_a_name_that_says_where_to_get_code_is_refused(tmp_path, name):
    with pytest.raises(DataError, match="would download code"):
        list(corpus(name, tmp_path).pairs("train"))


def test_without_permission_nothing_is_downloaded(tmp_path):
    settings = DataConfig(source="tfds", name="wmt14_translate/de-en:1.0.0", directory=str(tmp_path), download=False)
    with pytest.raises(DataError, match=r"--config\.data\.download=true allows it"):
        list(open_corpus(settings, 0).pairs("train"))
    assert not list(tmp_path.iterdir())
