"""Rows of layers in torch, through the table of rules."""

import pytest
import torch

from pyro_moments import propagate
from tests.cases import LAYERS


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
def test_layers(case):
    mode = case.propagation.covariance
    case.check(propagate(case.torch, *case.inputs(torch.tensor), covariance=mode))
