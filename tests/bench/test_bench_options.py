"""What is chosen of a suite, by parts of names."""

import pytest

from gnnplace.bench.options import BenchOptions, chosen
from gnnplace.bench.suites import run_suite
from gnnplace.errors import GnnplaceError

BY_NAME = {"2017-nmt_2": 1, "2018-nmt_2": 2, "2018-nmt_4": 3, "2018-rnnlm": 4}


def test_what_has_any_of_the_texts_in_its_name_is_chosen_once_and_in_order() -> None:
    assert chosen(BY_NAME, ["nmt_4", "2018-nmt", "2017"], "row") == [1, 2, 3]


def test_without_a_text_everything_is_chosen() -> None:
    assert chosen(BY_NAME, [], "row") == [1, 2, 3, 4]


def test_a_text_that_is_in_no_name_is_refused_beside_one_that_is() -> None:
    with pytest.raises(GnnplaceError, match="no case has 'vgg' in its name, such as '2017-nmt_2' or '2018-rnnlm'"):
        chosen(BY_NAME, ["nmt", "vgg"], "case")


@pytest.mark.parametrize(("suite", "noun"), [("seeds", "row"), ("spotlight", "row"), ("generalization", "case")])
def test_a_suite_says_which_of_its_rows_or_cases_there_is_not(suite: str, noun: str) -> None:
    with pytest.raises(GnnplaceError, match=f"no {noun} has 'vgg' in its name"):
        run_suite(suite, BenchOptions(only=("vgg",)))
