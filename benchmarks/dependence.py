"""The alarm of mean-field fits beside NUTS: what is left of the slope, and how far means are off.

    python benchmarks/dependence.py DIRECTORY docs/experiments/dependence.json

The directory holds posteriordb, with its reference draws; textbooks' models and those of
dependence_models.py get draws of NumPyro's NUTS. Rows of the file are not computed again.
"""

import argparse
import contextlib
import json
import signal
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import covariances
import host_numpyro
import host_pyro
import jax
import numpy as np
import torch
from dependence_models import MODELS, model_and_data
from harness import fitted
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import unconstrain_fn
from posteriordb import DRAWS, Posterior
from posteriors_models import DESIGNS, KINDS

DOCS = Path(__file__).parents[1] / "docs"
WARM_UP, KEPT, CHAINS = 500, 1000, 1
PATIENCE = 60.0  # seconds of the processor for a row
MIXED = 1.05  # split R-hat of all coordinates up to which a chain counts
TAILS = 2 * 1.6449  # standard deviations between the 5 % and 95 % quantiles


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("directory", type=Path, help="of posteriordb")
    options.add_argument("file", type=Path, help="JSON")
    options.add_argument("--only", default="", help="part of the name of a model")
    options = options.parse_args()
    rows = json.loads(options.file.read_text()) if options.file.exists() else {}
    for name, row in cases(options.directory):
        if name in rows or options.only not in name:
            continue
        start = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, PATIENCE)
            rows[name] = row()
        except Exception as error:  # whatever the framework or the library says
            rows[name] = {"refused": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
        print(name, rows[name], f"{time.process_time() - start:.0f} s", flush=True)
        options.file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def give_up(*_):
    raise TimeoutError(f"not waited for beyond {PATIENCE:g} s of the processor")


def cases(directory):
    """Names, and what makes their rows."""
    sys.path.insert(0, str(DOCS))
    for path in sorted(directory.glob("*.json")):
        if path.stem in DESIGNS or path.stem in KINDS:
            yield path.stem, partial(of_posterior, path)
    known = json.loads((DOCS / "experiments" / "covariances.json").read_text())
    for name in covariances.MODELS:
        yield f"{name}, 4 × 5000 draws", partial(of_reference, name, known[name]["reference"])
    for name in MODELS:
        yield name, partial(of_own, name)
    textbooks = __import__("models_tried_textbooks")
    for name, title in textbooks.TITLES.items():
        yield title, partial(of_textbook, name, textbooks)


@contextlib.contextmanager
def in_doubles():
    with host_pyro.doubles(), jax.enable_x64(True):
        yield


def row_of(fit, off, site):
    """A row: nats left, where, and the largest error of a mean in standard deviations of NUTS."""
    if not fit.converged:
        return {"refused": fit.reason}
    found = fit.dependence
    if found.reason:
        return {"refused": found.reason, "off": round(off, 3), "at": site}
    named = {"left": float(f"{found.left:.3g}"), "named": [*found.sites]}
    return {**named, "off": round(off, 3), "at": site}


def of_reference(name, reference):
    """A model of covariances.py, with the draws that are stored there."""
    case = covariances.MODELS[name]()
    with in_doubles():
        host_pyro.fresh()
        data = [host_pyro.array(part) for part in case.data]
        fit = fitted(host_pyro, case.make(host_pyro), *data, method="newton", float64=True)
        off = {}
        for site, found in reference["sites"].items():
            own = next(part for key, part in fit.params.items() if key.endswith(f"locs.{site}"))
            errors = np.abs(own.numpy().ravel() - found["mean"]) / found["deviation"]
            off[site] = float(errors.max())
        worst = max(off, key=off.get)
        return row_of(fit, off[worst], worst)


def of_own(name):
    model, data = model_and_data(name)
    with in_doubles():
        arrays, others = ({key: host.array(value) for key, value in data.items()} for host in HOSTS)
        host_pyro.fresh()
        fit = fitted(host_pyro, partial(model, host_pyro, arrays), method="newton", float64=True)
        return row_of(fit, *beside_chains(fit, partial(model, host_numpyro, others), ()))


HOSTS = host_pyro, host_numpyro


def of_textbook(name, textbooks):
    values = textbooks.data_of(name)
    with in_doubles():
        host_pyro.fresh()
        data = [textbooks.tensor(part) for part in values]
        model = getattr(textbooks.textbook_pyro, name)
        fit = fitted(host_pyro, model, *data, method="newton", float64=True)
        others = [jax.numpy.asarray(part) for part in values]
        chains = beside_chains(fit, getattr(textbooks.textbook_numpyro, name), others)
        return row_of(fit, *chains)


def beside_chains(fit, model, data):
    """The largest error of a mean on the unconstrained space, and its site.

    Sites whose coordinates the frameworks choose otherwise are left out.
    """
    sampler = MCMC(
        NUTS(model),
        num_warmup=WARM_UP,
        num_samples=KEPT,
        num_chains=CHAINS,
        progress_bar=False,
    )
    sampler.run(jax.random.key(0), *data)
    draws = sampler.get_samples()
    free = jax.vmap(lambda values: unconstrain_fn(model, data, {}, values))(draws)
    off = {}
    for site, values in free.items():
        by_chain = np.asarray(values).reshape(CHAINS, KEPT, -1)
        if not np.max(split_gelman_rubin(by_chain)) <= MIXED:
            raise ValueError(f"the chain has not mixed: {site}")
        own = next(part for name, part in fit.params.items() if name.endswith(f"locs.{site}"))
        kept = by_chain.reshape(CHAINS * KEPT, -1)
        if own.numel() == kept.shape[1] and not is_mixed(draws[site]):
            errors = np.abs(own.numpy().ravel() - kept.mean(0)) / kept.std(0)
            off[site] = float(errors.max())
    worst = max(off, key=off.get)
    return off[worst], worst


def is_mixed(draws):
    """Whether draws are simplexes, or ordered by a transform of all their elements."""
    values = np.asarray(draws)
    if values.ndim < 2 or values.shape[-1] < 2:
        return False
    is_simplex = np.allclose(values.sum(-1), 1)
    return is_simplex or bool((np.diff(values, axis=-1) > 0).all())


def of_posterior(path):
    posterior = Posterior.read(path)
    with in_doubles():
        host_pyro.fresh()
        fit = fitted(host_pyro, posterior.model(host_pyro), method="newton", float64=True)
        draws = host_pyro.posterior_draws(fit.guide, fit.params, DRAWS)
        draws = {name: np.asarray(part) for name, part in draws.items()}
        return row_of(fit, *beside_reference(posterior, posterior.parameters(draws)))


def beside_reference(posterior, draws):
    """The largest error of a mean; of positive parameters of their logarithms."""
    known = {name: np.asarray(part) for name, part in posterior.reference.items()}
    off = {}
    for at, (name, values) in enumerate(draws.items()):
        mean, deviation = known["mean"][at], known["sd"][at]
        if name.split("[")[0] in posterior.positive:
            low, mean, high = (np.log(known[f"quantile_{part}"][at]) for part in ("05", "50", "95"))
            values, deviation = np.log(values), (high - low) / TAILS
        off[name] = float(abs(values.mean() - mean) / deviation)
    worst = max(off, key=off.get)
    return off[worst], worst


if __name__ == "__main__":
    torch.set_num_threads(1)
    signal.signal(signal.SIGPROF, give_up)
    warnings.simplefilter("ignore")
    main()
