"""Pyro on a device: what `on_gpu` asks. `on_gpu_numpyro` has the same names."""

import contextlib
from types import SimpleNamespace

import pyro
import torch

from pyro_moments import predict


def described(gpu):
    """The name of the device."""
    return torch.cuda.get_device_name() if gpu == "cuda" else gpu


@contextlib.contextmanager
def on(place, precision):
    """Make tensors on a device, in a precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, precision))
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    try:
        with torch.device(place), pyro.settings.context(module_local_params=True):
            yield
    finally:
        torch.set_default_dtype(before)


def evaluated(case, x, precision, place, start):
    """Losses, gradients and predictions of a case, and the parameters that it began with."""
    with on(place, precision):
        x = torch.as_tensor(x, dtype=getattr(torch, precision), device=place)
        y = torch.as_tensor(case.y, device=place)
        y = y.to(x.dtype) if y.is_floating_point() else y
        model = case.model()
        guide = case.guide(model) if case.guide.__module__.startswith("pyro.") else case.guide()
        loss = case.objective(model, guide)
        loss(x, y)  # makes the parameters
        named = dict(guide.named_parameters())
        start = start or {name: value.detach().numpy().copy() for name, value in named.items()}
        for name, value in named.items():
            if value.device.type != torch.device(place).type:
                raise RuntimeError(f"parameter {name} is on {value.device}")
            value.data.copy_(torch.as_tensor(start[name]))
        losses = [loss(x, y) for _ in range(case.losses)]
        losses[0].backward()
        result = SimpleNamespace(parameters=start, losses=_array(torch.stack(losses)))
        result.gradients = {name: _array(value.grad) for name, value in named.items()}
        if case.losses == 1:
            result.mean, result.variance = _predicted(case, model, guide, loss, x, y)
        return result


def _predicted(case, model, guide, loss, x, y):
    """Means and variances after steps of Adam; of classes and counts the log density."""
    adam = torch.optim.Adam(guide.parameters(), lr=1e-3)
    for _ in range(5):
        adam.zero_grad()
        loss(x, y).backward()
        adam.step()
    prediction = predict(model, guide, x)["obs"]
    mean = prediction.mean if case.y.dtype.kind == "f" else prediction.log_prob(y)
    return _array(mean), _array(getattr(prediction, "variance", mean))


def _array(tensor):
    return tensor.detach().cpu().double().numpy()


def synchronised(step):
    """A step that has ended when it returns."""

    def waited():
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return waited
