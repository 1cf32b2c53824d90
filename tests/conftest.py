"""One thread for each worker, a fresh parameter store and a fixed seed for each test."""

from __future__ import annotations

import functools
import gc
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Compiling takes longer than running here: let XLA optimise less, by its older emitters.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

import pyro
import pytest
import torch
from jax._src.interpreters import mlir

torch.set_num_threads(1)
# A context for each of ten thousand small programs takes a sixth of the time of JAX's tests.
mlir.make_ir_context = functools.cache(mlir.make_ir_context)


def pytest_collection_finish():
    """Modules and programs live on: looking for garbage among them takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True)
def _fresh_pyro():
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# What takes longest, and repeats on larger models what other tests assert: make test-all runs it.
SLOW = (
    "numpyro/test_contractions.py::test_networks_of_columns[columns-full]",
    "numpyro/test_control_flow.py::test_sites_inside_a_scan_of_numpyro_against_samples",
    "numpyro/test_convolutional_networks.py",
    "numpyro/test_elbo_against_monte_carlo.py::test_dvi_rules_agree_with_the_exact_ones",
    "numpyro/test_elbo_against_monte_carlo.py::test_gradients_match_finite_differences",
    "numpyro/test_elbo_against_monte_carlo.py::test_regression[three hidden layers]",
    "numpyro/test_host_guides.py",
    "numpyro/test_latent_sites.py::test_host_guides_against_samples[AutoDiagonalNormal-full]",
    "numpyro/test_latent_sites.py::test_host_guides_against_samples[AutoNormal-diagonal]",
    "numpyro/test_modules.py",
    "numpyro/test_regression_models.py::test_elbo_equals_trace_elbo[a function of effects]",
    "numpyro/test_regression_models.py::test_elbo_equals_trace_elbo[a shared scale, by a sum]",
    "numpyro/test_regression_models.py::test_elbo_equals_trace_elbo[random walks of splines]",
    "numpyro/test_regression_models.py::test_elbo_equals_trace_elbo[varying slopes of two vectors]",
    "numpyro/test_state_space.py::test_chains_against_samples[random_drift",
    "numpyro/test_state_space.py::test_chains_against_samples[second_order",
    "numpyro/test_state_space.py::test_chains_against_samples[vector_states",
    "numpyro/test_svi.py::test_training_lowers_the_loss_without_noise[heteroscedastic",
    "numpyro/test_svi.py::test_training_lowers_the_loss_without_noise[residual",
    "numpyro/test_svi.py::test_training_lowers_the_loss_without_noise[sequential",
    "pyro/test_capture.py::test_sampled_sites_are_drawn_anew[inductor",
    "pyro/test_compiled.py::test_equals_the_eager_program[residual-full]",
    "pyro/test_elbo_against_monte_carlo.py::test_regression[three hidden layers]",
    "pyro/test_likelihood_models.py::test_predictions_obey_the_law_of_total_variance[Gamma]",
    "pyro/test_likelihood_models.py::test_predictions_obey_the_law_of_total_variance[ZeroInflatedPoisson]",
    "pyro/test_likelihood_models.py::test_predictions_obey_the_law_of_total_variance[probit]",
    "pyro/test_predict.py::test_moments_and_density_match_samples[residual]",
    "test_benchmarks.py::test_step_time[numpyro",
    "test_examples.py::test_analytic_and_sampled_predictions_agree[predictions_in_numpyro",
    "test_examples.py::test_demo[numpyro",
    "test_examples.py::test_uci_regression[ddvi-numpyro",
    "test_examples.py::test_uci_regression[dvi-numpyro",
    "test_examples.py::test_uci_regression[mcvi-numpyro",
    "test_twelve_models.py::test_elbo_agrees_with_samples[numpyro",
    "test_twelve_models.py::test_elbo_agrees_with_samples[pyro-layer norm]",
    "test_twelve_models.py::test_elbo_agrees_with_samples[pyro-residual]",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(SLOW):
            item.add_marker(pytest.mark.slow)
