"""NumPyro on a device: what `on_gpu` asks. `on_gpu_pyro` has the same names."""

import contextlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import transform_fn
from numpyro.optim import Adam

from numpyro_moments import SVI, predict


def described(gpu):
    """The kind of the device."""
    return jax.devices(gpu)[0].device_kind


@contextlib.contextmanager
def on(place, precision):
    """Make arrays on a device, in a precision."""
    with jax.default_device(jax.devices(place)[0]), jax.enable_x64(precision == "float64"):
        yield


def evaluated(case, x, precision, place, start):
    """Losses, gradients and predictions of a case, and the parameters that it began with."""
    # By default JAX multiplies float32 matrices by TF32 on a GPU, with ten bits.
    with on(place, precision), jax.default_matmul_precision("highest"):
        x = jnp.asarray(x, precision)
        y = jnp.asarray(case.y, precision if case.y.dtype.kind == "f" else None)
        model = case.model()
        ours = case.guide.__module__.startswith("moment_guides.")
        svi = SVI(model, case.guide() if ours else case.guide(model), Adam(1e-3), case.objective)
        state = jax.jit(svi.init)(jax.random.key(0), x, y)
        if start is None:
            start = jax.tree.map(np.asarray, svi.get_params(state))
        parameters = jax.tree.map(jnp.asarray, start)
        unconstrained = transform_fn(svi.constrain_fn.args[0], parameters, invert=True)
        state = state._replace(optim_state=svi.optim.init(unconstrained))

        def loss(parameters, key):
            return svi.loss.loss(key, svi.constrain_fn(parameters), svi.model, svi.guide, x, y)

        both = jax.jit(jax.value_and_grad(loss))
        keys = jax.random.split(jax.random.key(1), case.losses)
        found = [both(svi.optim.get_params(state.optim_state), key) for key in keys]
        result = SimpleNamespace(parameters=start)
        result.losses = np.asarray([float(value) for value, _ in found])
        result.gradients = jax.tree.map(np.asarray, found[0][1])
        if case.losses == 1:
            result.mean, result.variance = map(np.asarray, _predicted(case, svi, state, x, y))
        return result


def _predicted(case, svi, state, x, y):
    """Means and variances after steps of Adam; of classes and counts the log density."""
    steps = jax.jit(lambda now: jax.lax.scan(lambda s, _: svi.update(s, x, y), now, length=5))

    @jax.jit
    def predicted(parameters):
        prediction = predict(svi.model, svi.guide, parameters, x)["obs"]
        if case.y.dtype.kind == "f":
            return prediction.mean, prediction.variance
        return prediction.log_prob(y), prediction.log_prob(y)

    return predicted(svi.get_params(steps(state)[0]))


def synchronised(step):
    """A step that has ended when it returns: the host's steps wait already."""
    return step
