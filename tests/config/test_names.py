from transformer_jax.config.names import natural_order, nearest


def test_the_nearest_name_is_found_if_one_is_near():
    assert nearest("trian", ["train", "translate"]) == "train"
    assert nearest("val", ["train", "validation"]) == "validation"
    assert nearest("tr", ["train", "translate"]) is None
    assert nearest("xyz", ["train", "translate"]) is None
    assert nearest("trian", (name for name in ())) is None


def test_numbers_in_names_count_by_value():
    names = ["layer_10/self", "layer_9/self", "layer_9/cross", "2", "x", ""]
    assert sorted(names, key=natural_order) == ["", "2", "layer_9/cross", "layer_9/self", "layer_10/self", "x"]
