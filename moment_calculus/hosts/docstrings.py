"""What the docstrings of both front ends and their guides say alike, written once.

A docstring names such a part in braces, on a line of its own, and :func:`documented` puts it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any])


def documented(host: str, **parts: str) -> Callable[[Documented], Documented]:
    """Decorate a function or class in whose docstring parts are named in braces.

    Args:
        host: name of the probabilistic language, for parts that name it.
        **parts: texts by the names that the docstring has for them.

    Returns:
        The decorator.

    Example:
        >>> @documented("Pyro", greeting="Greetings from {host}.")
        ... def function():
        ...     '''{greeting}'''
        >>> function.__doc__
        'Greetings from Pyro.'
    """

    def decorate(item: Documented) -> Documented:
        lines = (item.__doc__ or "").split("\n")  # None under python -OO
        item.__doc__ = "\n".join(_filled(line, host, parts) for line in lines)
        return item

    return decorate


def _filled(line: str, host: str, parts: dict[str, str]) -> str:
    """A line of a docstring, or the part that it names, as far to the right."""
    name = line.strip().removeprefix("{").removesuffix("}")
    if line.strip() != f"{{{name}}}":
        return line
    text = parts[name].strip("\n").replace("{host}", host)
    margin = line[: len(line) - len(line.lstrip())]
    return "\n".join(margin + row if row else row for row in text.split("\n"))


SITE_TERMS = """
Gaussian latent sites flow through the model as moments; the expected log-likelihood of every
observed site and the KL divergence of every latent site are taken in closed form. Each site
contributes s_model (−KL − H) + s_guide H, with the scales and masks of model and guide, so
the result equals {host}'s ``Trace_ELBO`` in expectation. Beyond the first random layer the
activations are matched by Gaussians, which is the approximation of the source paper.
"""

OBJECTIVE_OPTIONS = """
covariance: ``"full"`` carries the covariance over the feature axis, ``"diagonal"`` the
    variances only (O(d) instead of O(d²) memory for each element of the batch).
rules: rule book: ``"exact"`` (covariances of activations without closed pairs by 32 terms of
    a series, see :func:`moment_calculus.functions.pairs.covariance.covariance`), ``"dvi"`` for
    the source paper's approximate covariances, ``"first_order"`` for the delta method, or a
    rule book of your own.
categorical: rule for classes with Gaussian logits, whose joint covariance is used in diagonal
    mode too: ``"points"`` (fixed points, 2 to 3 % off at the optimum of a network with one
    hidden layer), ``"pairs"`` (pairwise logsumexp, 2 to 6 %), the lower bounds ``"tilted"`` and
    ``"jensen"``, ``"delta"`` (the source papers', wrong by factors once it is trained) or
    ``"sample"`` (unbiased: the logits alone are drawn). BB-α knows the means of powers by
    points, pairs and draws.
categorical_draws: number of draws of the logits for ``categorical="sample"``.
sample_sites: names of latent sites that are drawn by reparameterisation instead.
num_particles: number of draws of the ``sample_sites``; one pass suffices without them.
memory_limit: bytes that one covariance may take, checked before it is computed; by
    default half of the physical memory.
"""

BOTH_ORDERS = """
Both argument orders work: ``SVI(model, guide, loss)`` and {host}'s own
``SVI(model, guide, optim, loss)``.

Args:
    model: {host} model.
    guide: {host} guide.
    *optim_and_loss: an optimiser, a loss, or both in this order.
"""

NETWORK_START = """
The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the symmetry
between hidden units whichever axis is the input; that of vectors ½, because units whose kinks
all start at zero keep a network nearly linear until its noise has absorbed what it cannot fit.
Neither exceeds the prior's standard deviation. Scalars start at the prior mean, sites with
constrained support where their unconstrained value is zero.

Args:
    site: {host} sample site; without one the function itself is returned, as {host}'s
        initialisers do.
"""

EMPIRICAL_BAYES = """
The analytic ELBO puts the variance λ* that is optimal for the current posterior into the KL
divergence (type-II maximum a posteriori). Everything else, NUTS and prior samples included,
sees the exact marginal: a multivariate Student-t with 2α degrees of freedom and squared scale
β/α. One instance is one set: give each weight matrix and each bias vector its own.
"""

GUIDE_OPTIONS = """
init_loc_fn: initial locations, a function of a site.
init_scale: initial standard deviation of every component, on the unconstrained space.
    Small values matter: the default is far below usual priors.
create_plates: optional function that makes the plates, as in {host}'s guides.
"""

GUIDE_ERRORS = """
Raises:
    ValueError: if ``init_scale`` is not positive.
    RuntimeError: when called without having met a model.

Source: Wu et al. 2019; factorised posterior of section 2.

Example:
    >>> guide = DVIGuide(init_scale=0.02)
"""

PROPAGATION = """
Different inputs are independent of each other; within one input the components have the
covariance given, or are independent.

``propagation="sampled"`` draws the inputs ``num_particles`` times from Gaussians with these
moments, and gives moments over what ``fn`` makes of them: any operation will do, and the error
is a Monte Carlo one. ``propagation="mean"`` evaluates ``fn`` at the means, with variance zero.

Raises:
    ValueError: if an option is unknown, or there are fewer than two particles to sample.
    UnsupportedMoments: if ``fn`` uses an operation without a rule (analytic).

Source: Shekhovtsov et al. 2018.
"""

POSTERIOR_ERRORS = """
Raises:
    UnsupportedMoments: if the posterior is none of these, is discrete, or has other random
        parameters; or if it is a multivariate Normal and only variances are propagated.
"""

QUADRATURE_ERRORS = """
Raises:
    UnsupportedMoments: if the parameters are not elementwise functions of one Gaussian, or of
        two whose covariance is known, or one is Gaussian where the distribution is confined.
"""

ORDER_ERRORS = """
Raises:
    TypeError: if an argument is neither an optimiser nor a loss, or is given twice.
"""

HYPERPRIOR_ERRORS = """
Raises:
    ValueError: if ``alpha`` or ``beta`` is not positive.

Source: Wu et al. 2019, eqs. 11-13; α = 1, β = 10 as in its experiments.
"""

EVALUATED_SITE = """
Args:
    name: the site, for messages.
    fn: its distribution.
    value: observation, or the value of a latent site.

Raises:
    UnsupportedMoments: if the distribution has no rule; the message lists those that have.
"""

FIT_ARGUMENTS = """
Args:
    model: the model.
    guide: a guide, also one without a model; its scales set the units of the steps, where they
        are named like those of ``DVIGuide`` and ``AutoNormal``.
    *data: arguments of model and guide: arrays, or dictionaries and tuples of arrays. Or a loader
        of mini-batches (a DataLoader, an iterable for each epoch, or an iterator), which gives the
        arguments by name if a mini-batch is a dictionary, in order if it is a list.
    objective: an ELBO; by default ``DeterministicELBO()``.
    method: ``"adam"``; or, for a deterministic loss of all data, ``"lbfgs"``, or ``"newton"`` with
        the dense Hessian of up to 1000 parameters, and Hessian–vector products beyond, both by
        SciPy.
    steps: largest number of steps; by default 2000, 5000 and 500.
    tolerance: where a deterministic method has converged: for ``"newton"`` the Newton decrement
        ½ gᵀ H⁻¹ g in nats, for ``"lbfgs"`` the relative change of the loss in ten steps; by
        default 1e-9, and never below what the precision of the loss shows. For ``"adam"`` the
        relative change of the mean loss from ``every`` steps to the next; by default none.
        ``"lbfgs"`` and ``"adam"`` on all data look at the least curvature where they come to rest,
        by at most 24 slopes: they step off a saddle, and go on.
    learning_rate: of Adam, by default 0.01; or a function of the number of steps made before.
    optimiser: in place of Adam one of {host}'s, with its schedule and gradient clipping, or one
        of Optax (NumPyro), or a function that makes one of torch of the parameters (Pyro).
    batch_size: rows of a mini-batch. All arguments are cut along their first axis, shuffled anew
        in every epoch by the seed; rows that fill no mini-batch are left out of an epoch.
    epochs: how often to go through all mini-batches, in place of ``steps``.
    rows: rows of all data, where a loader does not tell.
    plate: the plate of the rows, where it is not the only one of the mini-batch's size. What is
        observed in it counts as much as all rows do; a model that scales itself, by a subsampled
        plate or a handler, is left as it is.
    kl_warm_up: number of steps in which the weight of the KL divergence rises to one; or a tuple,
        steps without it and steps of the rise.
    held_out: arguments of the model, with observations, that are not trained on. The parameters
        with the highest log predictive density of these are kept.
    patience: evaluations of it without a rise after which the training stops.
    every: steps between two looks at what is held out, of the callback, and two checkpoints; by
        default 100. A deterministic method begins a new round with each.
    callback: called with the :class:`Progress`; it ends the training by returning True.
    progress_bar: whether a bar shows the ELBO and its parts; by default on terminals.
    checkpoint: path of a file that is written all along; if it exists, the fit goes on from it and
        ends as if it had never been interrupted, on the same machine bit for bit.
    prior: an earlier fit with a ``DVIGuide``, on other data: its posterior takes the place of the
        model's prior. Sites in a plate with what is observed are of the rows, and keep theirs.
    restarts: trainings from different starts, the best of which is kept.
    float64: whether to compute in double precision, with doubles of the arrays among the
        arguments; those that the model has elsewhere, such as in closures, are the model's own.
    by_draws: whether to evaluate a closed-form loss once more at the end by draws of the guide, and
        to warn where they contradict it. 32 particles are drawn, up to 1024 where fewer do not tell
        one per cent of the loss. Of more than 2000 rows both are of that many, drawn at random and
        scaled up as a mini-batch is; of all where the arguments have not the same rows, or the
        model does not run on fewer. It takes at most a tenth of the time of the fit, but up to one
        second or eight particles for the first 32, and for more where these contradict the loss; in
        NumPyro it is compiled before. Random states of the user are left as they are.
    seed: of the order of mini-batches, and in NumPyro of the random key.
"""

FIT_ERRORS = """
Raises:
    ValueError: if options are unknown or do not go together, the method needs a deterministic
        loss and this one is not, or a finite loss at the start; if it is not
        clear how a mini-batch is to be scaled; if the order of a loader cannot be restored.
    StoredFileError: if the checkpoint is damaged, or of another fit.
    UnsupportedMoments: if the model leaves the supported operations.

Warns:
    LossByDrawsWarning: if the loss by draws is another one, by three standard errors and by one
        per cent of the loss.
"""

SAVED = """
The file holds the parameters as safetensors, and a header of JSON: the version of its format and of
the libraries, the guide, and the model's sites with their distributions and shapes. Nothing in it
is executed when it is loaded.

Args:
    path: the file; one that exists is replaced at once, and never left half written.
    model: the model.
    guide: the trained guide.
    *data: arguments of model and guide, as in training; the model is run on them once, to know
        its sites.
    **named: likewise, by name.
"""

LOADED = """
Args:
    path: the file.
    model: the model that it was trained with.
    guide: a guide of the same class, and with the same settings where the posterior has some
        beside its parameters (``p`` and ``noise`` of ``MCDropoutGuide``); it may be a new one.
    *data: arguments of model and guide: new inputs suffice for ``DVIGuide``, others need the
        observations, as they take what is not observed for latent.
    **named: likewise, by name.

Returns:
    A fit with the guide and its parameters; of a checkpoint also the losses so far.

Raises:
    FileNotFoundError: if there is no file.
    StoredFileError: if it is truncated, damaged, foreign, of a newer version, of another host,
        guide or model; the message names the cause and the remedy.
"""
