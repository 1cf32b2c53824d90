"""Every cell of the grid of guides, propagation and objectives, in both hosts."""

import numpy as np
import pytest

from moment_calculus.errors import UnsupportedMoments
from tests.propagation import grid
from tests.propagation.oracle import losses, near
from tests.response.models import doubles

PARTICLES, DRAWS = 1250, 16


def losses_of(host, guide, flow, objective):
    model = grid.linear(host)
    with doubles(host):
        guide, params = grid.guide_of(host, guide, model)
    of = grid.objective_of(host, objective, flow, PARTICLES)
    count = DRAWS if flow == "sampled" else 1
    return losses(host, of, model, {}, grid.X, grid.Y, count=count, guide=guide, params=params)


CELLS = grid.TABLE.cells(legal=True)
IN_NUMPYRO = [
    cell for cell in CELLS if "DVIGuide" in cell or ("RenyiELBO" not in cell and "mean" not in cell)
]


@pytest.mark.parametrize(
    ("host", "guide", "flow", "objective"),
    [*(("pyro", *cell) for cell in CELLS), *(("numpyro", *cell) for cell in IN_NUMPYRO)],
    indirect=["host"],
)
def test_a_linear_model_has_its_closed_form(host, guide, flow, objective):
    found, expected = losses_of(host, guide, flow, objective), grid.exact(guide, flow, objective)
    if flow == "sampled":
        assert near(found, expected)
    else:
        assert found[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("guide", "flow", "objective"), grid.TABLE.cells(legal=False))
def test_what_is_illegal_is_refused_with_its_reason(host, guide, flow, objective):
    refusal = ValueError, UnsupportedMoments
    with pytest.raises(refusal, match=grid.TABLE.reason(guide, flow, objective)):
        losses_of(host, guide, flow, objective)


# Of these the gradients are compared between the frameworks in tests/golden.
COMPARED = ("DVIGuide", "TridiagonalGuide", "MCDropoutGuide")
IN_BOTH = [cell for cell in CELLS if cell[0] not in COMPARED and cell[2] == "DeterministicELBO"]
IN_BOTH += [cell for cell in CELLS if cell[:2] == ("DVIGuide", "sampled")]


@pytest.mark.parametrize(
    ("host", "guide", "flow", "objective"),
    [*(("pyro", *cell) for cell in CELLS), *(("numpyro", *cell) for cell in IN_BOTH)],
    indirect=["host"],
)
def test_a_network_has_finite_gradients(host, guide, flow, objective):
    guide = grid.network_guide(host, guide, grid.network(host))
    loss, gradients = grid.loss_and_gradients(
        host, grid.objective_of(host, objective, flow, 4), grid.network(host), guide
    )
    assert np.isfinite(loss)
    assert gradients
    assert all(np.isfinite(part).all() for part in gradients)
    assert sum(np.abs(part).sum() for part in gradients) > 0.1


def test_the_page_is_up_to_date():
    text = grid.TABLE.FILE.read_text(encoding="utf-8")
    assert text == grid.TABLE.page(), "run python docs/grid.py"
