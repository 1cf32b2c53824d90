"""What is chosen of objectives and predictions, and what is said of choices that are none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitting.models import HOSTS, fresh


@pytest.fixture(params=HOSTS)
def host(request):
    return fresh(request.param)


@pytest.mark.parametrize("objective", ["BBAlphaELBO", "RenyiELBO"])
@pytest.mark.parametrize(
    ("alpha", "kind"),
    [("0.5", "'0.5'.* not a str"), (None, "not a NoneType"), ([0.5], "not a list")],
)
def test_alpha_is_a_number(host, objective, alpha, kind):
    with pytest.raises(TypeError, match=rf"{objective}\(alpha=.*{kind}"):
        getattr(host.package, objective)(alpha)


@pytest.mark.parametrize("objective", ["BBAlphaELBO", "RenyiELBO"])
def test_alpha_may_be_an_array_of_one_number(host, objective):
    made = getattr(host.package, objective)
    for one in (0.5, np.float32(0.5), host.array(0.5), host.array([0.5])):
        assert made(one).alpha == 0.5
    with pytest.raises(TypeError, match=r"alpha is one number, not a \w+ of shape \(2,\)"):
        made(host.array([0.5, 0.6]))
