"""Typical mistakes: the first sentence names cause and remedy; no framework has the last word."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pytest

import moment_calculus
import moment_guides
import moment_inference
import numpyro_moments
import pyro_moments
from tests.fitting.models import HOSTS
from tests.mistakes.calls import CALLS
from tests.mistakes.data import COUNTS, DATA, IN, changed, counts
from tests.mistakes.models import OUT, data, fitted, trained

OWN = [
    str(Path(package.__file__).parent)
    for package in (moment_calculus, moment_guides, moment_inference, numpyro_moments, pyro_moments)
]
MISTAKES = {**DATA, **CALLS}


def raised_in(error):
    """The file where an error was raised."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return step.tb_frame.f_code.co_filename


def test_the_table_has_more_than_thirty_mistakes():
    assert len(MISTAKES) >= 30
    assert not {*DATA} & {*CALLS}


@pytest.mark.filterwarnings("ignore:Found .*vars in", "ignore:nothing is observed")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(host, name):
    call, cause, remedy = MISTAKES[name]
    with pytest.raises((TypeError, ValueError, FileNotFoundError)) as raised:
        call(host)
    first = str(raised.value).partition("\n")[0]
    assert re.search(cause, first), first
    assert re.search(remedy, first), first
    assert raised_in(raised.value).startswith(tuple(OWN)), raised_in(raised.value)


def test_forgotten_observations_are_a_warning_of_fit_at_the_user_s_line(host):
    with pytest.warns(UserWarning, match="nothing is observed.*pass y") as caught:
        fitted(host, host.regression, IN, steps=2)
    (found,) = (warning for warning in caught if "nothing is observed" in str(warning.message))
    assert found.filename.endswith("models.py")


def test_observations_that_are_given_are_no_warning(host):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "nothing is observed")
        fitted(host, counts(host), IN, COUNTS, steps=2)


def test_values_are_checked_where_pyro_validates_nothing():
    host = HOSTS["pyro"]
    with pyro.validation_enabled(False), pytest.raises(TypeError, match="the first -1"):
        fitted(host, counts(host), IN, changed(COUNTS, 2, -1))


def test_axes_outside_of_plates_are_named_in_pyro():
    host = HOSTS["pyro"]

    def model(x, y=None):
        host.language.sample("obs", host.dist.Normal(x @ host.weight(), 1.0), obs=y)

    with pytest.raises(TypeError, match=r"inside pyro.plate\('data', 20\), or call .to_event\(1\)"):
        fitted(host, model, IN, OUT)


def test_groups_that_the_model_has_not_are_named_in_pyro():
    host = HOSTS["pyro"]  # JAX takes the last group in place of one beyond it

    def model(group, y=None):
        with host.language.plate("groups", 3):
            mean = host.language.sample("mean", host.dist.Normal(0.0, 1.0))
        return host.observe(group, host.dist.Normal(mean[group], 1.0), y)

    found = fitted(host, model, COUNTS % 3, OUT)
    with pytest.raises(TypeError, match="is 7, of 3 entries: count groups from 0"):
        host.package.predict(model, found, np.array([7]))


def test_two_sites_of_one_name_are_named(host):
    def model(x, y=None):
        return host.weight() + host.weight()

    with pytest.raises(TypeError, match="named 'weight': give each a name of its own"):
        fitted(host, model, IN, OUT)


def test_a_bad_row_of_a_later_mini_batch_is_named_by_its_number(host):
    bad = changed(IN, (17, 0), np.nan)
    with pytest.raises(TypeError, match="row 17, column 0"):
        fitted(host, host.regression, bad, OUT, method="adam", batch_size=5, steps=9)


def test_the_second_call_is_checked_as_the_first(host):
    model = counts(host)
    fitted(host, model, IN, COUNTS, steps=2)
    with pytest.raises(TypeError, match="the first -1"):
        fitted(host, model, IN, changed(COUNTS, 2, -1), steps=2)


@pytest.mark.parametrize("kind", ["array", "frame"])
def test_a_response_in_pyro_names_data_that_are_no_tensors(kind):
    host = HOSTS["pyro"]
    response = host.package.linear_response(host.regression, trained("pyro"), *data(host))
    new = IN if kind == "array" else pd.DataFrame(IN)
    numbers = {"array": "x", "frame": "x.to_numpy()"}[kind]
    with pytest.raises(TypeError, match=re.escape(f"pass torch.as_tensor({numbers})")):
        response.predict(new)
