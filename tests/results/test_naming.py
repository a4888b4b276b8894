"""Names of results files."""

from smoothcert.results.naming import results_name


def test_a_name_lists_the_settings_that_differ_from_the_defaults():
    assert results_name("certify", "mnist", "test", 0.25, 1000) == "certify-mnist-test-sigma0.25-n1000.tsv"
    some = results_name("predict", "mnist", "test", 0.5, 1000, skip=20, most=200, shard=(2, 4))
    assert some == "predict-mnist-test-sigma0.5-n1000-skip20-max200-shard2of4.tsv"
