"""Mistakes of calls: what is passed in a place of something else."""

import numpyro.optim
import pyro.optim
import torch

import numpyro_moments
import pyro_moments
from tests.mistakes.models import IN, OUT, QUICK, Mistake, data, fitted, other, trained

FOREIGN = {"pyro": numpyro_moments, "numpyro": pyro_moments}
OPTIMISERS = {"pyro": pyro.optim.Adam, "numpyro": numpyro.optim.Adam}


class Network(torch.nn.Module):
    """A class that is passed in place of an object."""


def fit(model=None, guide=None, **options):
    """A fit with something else as a model or guide."""

    def call(host):
        chosen = model(host) if model else host.regression
        made = guide(host) if guide else host.package.DVIGuide()
        given = {name: part(host) if callable(part) else part for name, part in options.items()}
        return host.package.fit(chosen, made, *data(host), **{**QUICK, **given})

    return call


def svi(*parts):
    """SVI of other things than model, guide and objective."""
    return lambda host: host.package.SVI(*(part(host) for part in parts))


def verb(name, *parts, **options):
    """A public function of arguments, functions of the framework."""
    return lambda host: getattr(host.package, name)(*(part(host) for part in parts), **options)


def svi_object(host):
    return host.package.SVI(host.regression, host.package.DVIGuide())


def regression(host):
    return host.regression


def guide(host):
    return host.package.DVIGuide()


def guide_class(host):
    return host.package.DVIGuide


def result(host):
    return trained(host.name)


def inputs(host):
    return data(host)[0]


def outputs(host):
    return data(host)[1]


ORDER = "the other order: the model is Fit"
MADE = r"make an object of it, DVIGuide\(\)"

CALLS = {
    "a class as the guide": Mistake(fit(guide=guide_class), "guide is a class, DVIGuide", MADE),
    "a class as the guide of SVI": Mistake(svi(regression, guide_class), "guide is a class", MADE),
    "a class as the guide of predictions": Mistake(
        verb("predict", regression, guide_class, inputs), "guide is a class", MADE
    ),
    "a class as the objective": Mistake(
        lambda host: fit(objective=lambda _: host.package.DeterministicELBO)(host),
        "objective is a class, DeterministicELBO",
        r"DeterministicELBO\(\)",
    ),
    "a class as the objective of SVI": Mistake(
        svi(regression, guide, lambda host: host.package.DeterministicELBO),
        "loss is a class",
        r"DeterministicELBO\(\)",
    ),
    "a class as the optimiser": Mistake(
        fit(method="adam", optimiser=lambda host: OPTIMISERS[host.name]),
        "optimiser is a class, ",
        r"optim\.Adam\(",
    ),
    "a class as the model": Mistake(
        fit(model=lambda host: Network), "model is a class, Network", r"Network\(\.\.\.\)"
    ),
    "model and guide in the other order": Mistake(
        verb("fit", guide, regression, inputs), "the other order", r"fit\(model, guide, \.\.\.\)"
    ),
    "a fit before the model": Mistake(
        verb("predict", result, regression, inputs), ORDER, r"predict\(model, guide"
    ),
    "a fit in place of a guide": Mistake(fit(guide=result), "is what fit returned", "start=result"),
    "a fit in place of the model": Mistake(
        fit(model=result), "the model is Fit", r"calls \w+\.sample first, as in fit\(model, guide"
    ),
    "SVI in place of the model": Mistake(fit(model=svi_object), "the model is SVI", "function"),
    "SVI in place of the guide": Mistake(fit(guide=svi_object), "the guide is an SVI", "svi.guide"),
    "no guide": Mistake(
        verb("fit", regression, inputs, outputs), r"guide is \w+ \[20, 3\]", r"DVIGuide\(\)"
    ),
    "no model": Mistake(verb("fit", inputs, guide), r"model is \w+ \[20, 3\]", "first argument"),
    "two guides": Mistake(
        verb("fit", regression, guide, guide, inputs), "second guide, DVIGuide", "one guide"
    ),
    "an objective among the data": Mistake(
        verb("fit", regression, guide, lambda host: host.package.DeterministicELBO(), inputs),
        "DeterministicELBO among the model's arguments",
        "objective=",
    ),
    "a guide of the other framework": Mistake(
        fit(guide=lambda host: FOREIGN[host.name].DVIGuide()), "DVIGuide is not of", "import it"
    ),
    "an objective of the other framework": Mistake(
        fit(objective=lambda host: FOREIGN[host.name].DeterministicELBO()),
        "DeterministicELBO is not of",
        "import it",
    ),
    "lr": Mistake(fit(lr=0.1), "no option 'lr'", "did you mean learning_rate?"),
    "optimisers in two spellings": Mistake(
        fit(optimizer=None, optimiser=None), "got optimiser and optimizer", "pass one"
    ),
    "an untrained guide": Mistake(
        verb("predict", regression, guide, inputs),
        "the guide DVIGuide has not been trained",
        r"pass what fit returned, predict\(model, result",
    ),
    "an untrained guide of the framework": Mistake(
        verb(
            "predict", regression, lambda host: host.autoguide.AutoNormal(host.regression), inputs
        ),
        "the guide AutoNormal has not been trained",
        r"pass what fit returned, predict\(model, result",
    ),
    "num_steps": Mistake(fit(num_steps=3), "no option 'num_steps'", "did you mean steps?"),
    "an option of a guide": Mistake(
        lambda host: host.package.DVIGuide(init_scal=0.1), "no option 'init_scal'", "init_scale"
    ),
    "an option that a guide has not": Mistake(
        lambda host: host.package.TridiagonalGuide(warp=1), "no option 'warp'", "options are .*init"
    ),
    "an option that is none": Mistake(fit(warp=3), "no option 'warp'", "options are .*steps"),
    "more arguments than the model takes": Mistake(
        verb("predict", regression, result, inputs, outputs, inputs),
        r"model takes \(x, y=None\), and predict got 3",
        "pass the model's own",
    ),
    "fewer arguments than the model takes": Mistake(
        verb("fit", regression, guide), "got 0 argument.* 'x'", "pass the model's own"
    ),
    "a rate that is text": Mistake(
        fit(method="adam", learning_rate="0.1"), "learning_rate", "must be a number"
    ),
    "a key as the seed": Mistake(fit(seed=[0]), "seed must be an integer", "seed=0"),
    "another model than that of the fit": Mistake(
        verb("predict", other, result, inputs), "guide is of another model.* weight", "trained with"
    ),
    "a start of another model": Mistake(
        lambda host: fit(start=lambda _: fitted(host, other(host), IN, OUT))(host),
        "params has '.*slope",
        "pass what fit",
    ),
    "a function after its moments": Mistake(
        verb(
            "propagate", lambda host: host.package.Moments(inputs(host), variance=inputs(host) ** 2)
        ),
        "takes a function and then its inputs, got Moments",
        r"propagate\(function, moments\)",
    ),
    "deviations in place of variances": Mistake(
        verb(
            "propagate",
            lambda host: host.np.tanh,
            lambda host: host.package.Moments(inputs(host), variance=inputs(host)),
        ),
        "a variance is negative, -",
        "squares of standard deviations",
    ),
    "no folder for a file": Mistake(
        lambda host: host.package.save("nowhere/a", host.regression, result(host), *data(host)),
        "there is no folder",
        "make it",
    ),
    "a file without its data": Mistake(
        verb("load", lambda _: "nowhere", regression, guide), "load got 0 argument", "pass the"
    ),
}
