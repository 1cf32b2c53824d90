"""Contenders of `peers.py` and `peers_uci.py` that are libraries of their own, in what their
documents set, and nets of plain torch."""

import numpy as np
import torch
from peers import BLOCK, DRAWS, FLAT, HIDDEN, MOST, RATE, WEIGHT_SCALE, of_draws, timed, until_flat
from peers_hosts import STEPS
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DROPPED = 0.1


def tensors(data):
    """x, y [rows, 1] and test inputs in single precision, after the random state of the split."""
    torch.set_num_threads(1)
    torch.manual_seed(data.number)
    parts = data.x, data.y[:, None], data.x_test
    return [torch.as_tensor(part).float() for part in parts]


def plain(task, inputs, outputs, *between):
    """The network of torch, with modules before its last layer."""
    first, last = nn.Linear(inputs, HIDDEN[task]), nn.Linear(HIDDEN[task], outputs)
    return nn.Sequential(first, nn.ReLU(), *between, last)


def descended(parameters, loss, steps, rate):
    """Steps of Adam."""
    adam = torch.optim.Adam(parameters, lr=rate)
    for _ in range(steps):
        for part in loss():
            adam.zero_grad()
            part.backward()
            adam.step()


def dadvi(task, data):
    """Thirty fixed draws, mean field, by trust-region Newton steps."""
    import pymc
    import pymc_extras.inference

    with pymc.Model() as model:
        weights = pymc.Normal("weights", 0.0, 1.0, shape=10)
        bias = pymc.Normal("bias", 0.0, 1.0)
        noise = pymc.HalfNormal("noise", 1.0)
        pymc.Normal("obs", data.x @ weights + bias, noise, observed=data.y)
    options = {"n_draws": DRAWS, "random_seed": 0, "progressbar": False}
    found, seconds = timed(lambda: pymc_extras.inference.fit_dadvi(model, **options))
    draws = {name: part.values[0] for name, part in found.posterior.data_vars.items()}
    means = draws["weights"] @ data.x_test.T + draws["bias"][:, None]
    deviations = draws["weights"].std(0)
    return of_draws(seconds, data, means, draws["noise"][:, None], deviations)


def tyxe(task, data):
    """Its VariationalBNN and AutoNormal. Of the network the noise is a parameter, since a second
    guide meets the first one's sites; of the UCI sets its softplus makes the scale."""
    import pyro
    import tyxe
    from pyro.infer.autoguide import AutoNormal
    from pyro.nn import PyroParam

    x, y, x_test = tensors(data)
    pyro.clear_param_store()
    uci, dist, best = task == "uci", pyro.distributions, [np.inf, 0.0]
    prior = tyxe.priors.IIDPrior(dist.Normal(0.0, WEIGHT_SCALE[task]))
    if uci:
        likelihood = tyxe.likelihoods.HeteroskedasticGaussian(len(x))
    else:
        scale = PyroParam(torch.tensor(1.0), constraint=dist.constraints.positive)
        likelihood = tyxe.likelihoods.HomoskedasticGaussian(len(x), scale=scale)
    net = tyxe.VariationalBNN(plain(task, x.shape[1], 1 + uci), prior, likelihood, AutoNormal)

    def flat(_, epoch, loss):
        """The rule of `until_flat`, as a callback."""
        best[1] += loss / BLOCK
        if (epoch + 1) % BLOCK:
            return False
        ended = best[1] > best[0] - FLAT
        best[:] = [min(best), 0.0]
        return ended

    ending = (STEPS,) if uci else (MOST, flat)
    loader, adam = [((x,), y)], pyro.optim.Adam({"lr": RATE})
    _, seconds = timed(lambda: net.fit(loader, adam, *ending))
    out = net.predict(x_test, num_predictions=DRAWS, aggregate=False)
    if uci:
        return of_draws(seconds, data, out[..., 0], functional.softplus(out[..., 1]))
    noise = np.full((DRAWS, 1), net.likelihood.scale.item())
    return of_draws(seconds, data, out[..., 0], noise)


def laplace(task, data):
    """A point estimate, a Kronecker-factored curvature about it, and the evidence for the rest.

    Of the UCI sets this is its example of a regression: 1000 epochs of Adam at 0.01 in batches of
    150 rows, then 1000 steps of Adam at 0.1 on the log marginal likelihood for prior precision and
    noise; of the network, Adam until the loss is flat, and 100 steps.
    """
    from laplace import Laplace

    x, y, x_test = tensors(data)
    net, uci = plain(task, x.shape[1], 1), task == "uci"

    def run():
        loader = DataLoader(TensorDataset(x, y), batch_size=150 if uci else len(x))
        if uci:
            epoch = lambda: (functional.mse_loss(net(a), b) for a, b in loader)  # noqa: E731
            descended(net.parameters(), epoch, 1000, 0.01)
        else:
            _until_flat(net, x, y[:, 0])
        found = Laplace(net, "regression", subset_of_weights="all", hessian_structure="kron")
        found.fit(loader)
        logs = [torch.full([1], float(uci), requires_grad=True) for _ in range(2)]
        evidence = lambda: [-found.log_marginal_likelihood(*(x.exp() for x in logs))]  # noqa: E731
        descended(logs, evidence, 1000 if uci else 100, 0.1)
        return found

    found, seconds = timed(run)
    mean, variance = found(x_test)
    scale = (variance[:, 0, 0] + found.sigma_noise.item() ** 2).sqrt().detach()
    return of_draws(seconds, data, mean[:, 0].detach()[None], scale[None])


def dropout(task, data):
    """Masks of the hidden units in training and in predictions; the noise is learnt."""
    x, y, x_test = tensors(data)
    net = plain(task, x.shape[1], 1, nn.Dropout(DROPPED))
    noise, seconds = timed(lambda: _until_flat(net, x, y[:, 0]))
    with torch.no_grad():
        means = torch.stack([net(x_test)[:, 0] for _ in range(DRAWS)])
    return of_draws(seconds, data, means, np.full((DRAWS, 1), noise))


def _until_flat(net, x, y):
    """Adam on the joint density of a network with unknown noise; the noise."""
    log_noise = torch.zeros((), requires_grad=True)
    adam = torch.optim.Adam([*net.parameters(), log_noise], lr=RATE)

    def step():
        adam.zero_grad()
        residual = (y - net(x)[:, 0]) / log_noise.exp()
        squares = sum(part.square().sum() for part in net.parameters())
        decay = squares / WEIGHT_SCALE["network"] ** 2
        loss = 0.5 * (residual.square().sum() + decay) + len(y) * log_noise
        loss.backward()
        adam.step()
        return loss.item()

    until_flat(step)
    return log_noise.exp().item()


def bayesian(task, data):
    """The constants of its README, loss and all, on a net of two outputs and all rows at once."""
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss

    x, y, x_test = tensors(data)
    net = plain(task, x.shape[1], 2)
    constants = {
        "prior_mu": 0.0,
        "prior_sigma": 1.0,
        "posterior_mu_init": 0.0,
        "posterior_rho_init": -3.0,
        "type": "Reparameterization",
        "moped_enable": False,
        "moped_delta": 0.5,
    }

    def run():
        dnn_to_bnn(net, constants)
        loss = lambda: [_loss(net(x), y) + get_kl_loss(net) / len(x)]  # noqa: E731
        descended(net.parameters(), loss, STEPS, RATE)

    _, seconds = timed(run)
    with torch.no_grad():
        return of_draws(seconds, data, *_normal(torch.stack([net(x_test) for _ in range(DRAWS)])))


def ensemble(task, data):
    """Five nets as in Lakshminarayanan et al. 2017, without adversarial examples: 40 epochs of Adam
    at 0.1 in batches of 100 rows."""
    x, y, x_test = tensors(data)
    nets = [plain(task, x.shape[1], 2) for _ in range(5)]

    def run():
        for net in nets:
            epoch = lambda n=net: (  # noqa: E731
                _loss(n(x[rows]), y[rows]) for rows in torch.randperm(len(x)).split(100)
            )
            descended(net.parameters(), epoch, 40, 0.1)

    _, seconds = timed(run)
    with torch.no_grad():
        return of_draws(seconds, data, *_normal(torch.stack([net(x_test) for net in nets])))


def _loss(out, y):
    """Mean of −log p(y); what has diverged stays NaN."""
    normal = torch.distributions.Normal(*_normal(out), validate_args=False)
    return -normal.log_prob(y[:, 0]).mean()


def _normal(out):
    return out[..., 0], torch.exp(0.5 * out[..., 1])
