"""Evidence and moments of the small models by a million draws of their priors, in kinds.json.

    python -m tests.nested.kinds_by_draws [NAME…]

No part of the library takes part: a draw of the prior weighs what the likelihoods are there.
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers

from tests.fitting.models import HOSTS
from tests.nested.kinds import KINDS, X

PATH = Path(__file__).with_suffix("").with_name("kinds.json")
BLOCK, BLOCKS = 2**15, 32


def weighted(make, y, key):
    """The log likelihood at a draw of the prior, and the latent sites there."""
    model = handlers.seed(make, key)
    trace = handlers.trace(model).get_trace(HOSTS["numpyro"], jnp.asarray(X), jnp.asarray(y))
    sites = [site for site in trace.values() if site["type"] == "sample"]
    densities = [
        jnp.sum(site["fn"].log_prob(site["value"])) * (site["scale"] or 1.0)
        for site in sites
        if site["is_observed"]
    ]
    return sum(densities), {s["name"]: s["value"] for s in sites if not s["is_observed"]}


def by_draws(make, y, blocks=BLOCKS):
    """Log evidence, its standard error, and of each latent site means and deviations."""
    block = jax.jit(
        lambda key: jax.vmap(lambda k: weighted(make, y, k))(jax.random.split(key, BLOCK))
    )
    parts = [block(key) for key in jax.random.split(jax.random.key(0), blocks)]
    logs = np.concatenate([np.asarray(part[0]) for part in parts])
    weights = np.exp(logs - logs.max())
    mean = weights.mean()
    found = {
        "log evidence": float(logs.max() + np.log(mean)),
        "standard error": float(weights.std() / mean / np.sqrt(len(logs))),
        "effective draws": float(weights.sum() ** 2 / (weights**2).sum()),
        "sites": {},
    }
    for name in parts[0][1]:
        values = np.concatenate([np.asarray(part[1][name]) for part in parts])
        shares = weights.reshape(-1, *[1] * (values.ndim - 1)) / weights.sum()
        centre = (shares * values).sum(0)
        spread = np.sqrt((shares * (values - centre) ** 2).sum(0))
        found["sites"][name] = [np.round(centre, 5).tolist(), np.round(spread, 5).tolist()]
    return found


def main(names):
    """Write the file, or the rows of some models."""
    numpyro.enable_x64()
    rows = json.loads(PATH.read_text()) if PATH.exists() else {}
    for make, (_, y) in KINDS.items():
        if not names or make.__name__ in names:
            rows[make.__name__] = by_draws(make, y)
            PATH.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
