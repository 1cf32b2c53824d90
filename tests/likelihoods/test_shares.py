"""The papers' closed forms of class probabilities: by hand, and their errors against draws."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import norm

from moment_calculus.likelihoods.classes import OF_PREDICTIONS
from tests.likelihoods.test_classes import problem, value_of

# Root mean square errors of E p at logit variances, as the docstring states them.
OF_PAPERS = {
    "logistic": {0.1: 0.0030, 1.0: 0.0191, 10.0: 0.0362},
    "normal": {0.1: 0.0802, 1.0: 0.0809, 10.0: 0.0773},
    "simplified": {0.1: 0.0051, 1.0: 0.0293, 10.0: 0.0928},
    "taylor": {0.1: 0.0004, 1.0: 0.0209, 10.0: 0.2709},
}


@pytest.mark.parametrize("variance", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", OF_PAPERS)
def test_closed_forms_of_the_papers_have_the_errors_that_are_stated(name, variance):
    squares = []
    for classes in (3, 10):
        mean, root, drawn = problem(classes, variance)
        shares, spread = OF_PREDICTIONS[name].probabilities(value_of(mean, root))
        np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-6)
        assert (shares >= 0).all()
        assert (spread >= 0).all()
        squares.append(np.mean((shares - np.exp(drawn).mean(0)) ** 2))
    error = np.sqrt(np.mean(squares))
    assert error == pytest.approx(OF_PAPERS[name][variance], rel=0.1, abs=1e-4)


def by_hand(name, mean, covariance):
    """The mean probabilities of one row, as the papers write them."""
    classes, noise, shares = len(mean), np.pi**2 / 3, []
    softmax = np.exp(mean - logsumexp(mean))
    for y in range(classes):
        others = [k for k in range(classes) if k != y]
        spread = {k: covariance[k, k] + covariance[y, y] - 2 * covariance[k, y] for k in others}
        if name == "logistic":
            odds = [(mean[k] - mean[y]) / np.sqrt(spread[k] / noise + 1) for k in others]
            shares.append(1 / (1 + np.sum(np.exp(odds))))
        elif name == "normal":
            steps = [(mean[y] - mean[k]) / np.sqrt(spread[k] + noise) for k in others]
            shares.append(np.prod(norm.cdf(steps)))
        elif name == "simplified":
            shares.append(np.exp(mean[y] / np.sqrt(covariance[y, y] / noise + 1)))
        else:
            unit = np.eye(classes)[y]
            second = np.outer(unit - softmax, unit - softmax) - np.diag(softmax)
            second = softmax[y] * (second + np.outer(softmax, softmax))
            shares.append(max(softmax[y] + 0.5 * np.sum(second * covariance), 0.0))
    return np.array(shares) / np.sum(shares)


@pytest.mark.parametrize("name", OF_PAPERS)
def test_closed_forms_are_those_of_the_papers(name):
    mean, root, _ = problem(4, 1.0)
    covariance = root @ np.swapaxes(root, -1, -2)
    expected = [by_hand(name, *row) for row in zip(mean, covariance, strict=True)]
    for array in (np.asarray, torch.as_tensor):
        shares = OF_PREDICTIONS[name].probabilities(value_of(array(mean), array(root)))[0]
        np.testing.assert_allclose(shares, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", OF_PAPERS)
def test_objectives_refuse_what_is_for_predictions(name, host):
    with pytest.raises(ValueError, match="categorical"):
        host.package.DeterministicELBO(categorical=name)
