"""Speed of networks in closed form, on one thread, in processor time.

    OMP_NUM_THREADS=1 python benchmarks/net_speed.py [--host numpyro] [--port DVI] [--check]

1. an update of a 13-50-2 network of heteroscedastic regression beside `TraceMeanField_ELBO` with
   `AutoNormal`; in NumPyro 200 of them in one scan; in Pyro also the first step with compiled=True;
2. one ELBO of full covariance with its gradients of 13-d-d-2, by width and by batch, beside a
   checkout of https://github.com/markovalexander/DVI, if `--port` names one;
3. the same of other activations beside relu;
4. its growth with the rows of 13-50-2, and with large batches of 13-50-50-2.

All contenders of a size run in turn in one process. Of the repeats the minimum counts in Pyro,
since whatever disturbs a run makes it slower, and the median in NumPyro; both are written down.
`--check` fails where a ratio, a time or an exponent is above its limit. docs/how_fast.py makes a
page of what `--out` writes.
"""

import argparse
import importlib
import importlib.util
import itertools
import sys
import types
from dataclasses import replace
from functools import partial
from pathlib import Path

import harness
import models
from first_steps import first_step
from harness import COMPILED, REFERENCE, Growth, Row, compared, in_processes, timed

BATCH, WIDTH, SCALE = 32, 100, 0.05  # the scale of the port's weights, as in the other contenders
PORT, PORT_LIMITS = "PyTorch port of DVI", {"pyro": 0.8, "numpyro": 0.6}
ACTIVATIONS = ("relu", "gelu", "elu", "silu", "softplus", "tanh", "sigmoid", "leaky_relu")
ACTIVATION_LIMITS = dict.fromkeys(("gelu", "elu", "silu", "softplus"), 2.0)
FULL, DIAGONAL = "full", "diagonal"
UPDATE_LIMITS = {
    "pyro": {FULL: 0.8, DIAGONAL: 0.8, FULL + COMPILED: 0.11, DIAGONAL + COMPILED: 0.11},
    "numpyro": {FULL: 1.0, DIAGONAL: 1.0},
}
SCANNED, FIRST_STEP = 200, 15.0  # updates at once in NumPyro; seconds
DEEP = f"13-{WIDTH}-{WIDTH}-2, full covariance"
# What grows, by which size, whether the port runs beside it, the limit of the exponent, and the
# layers and the rows by size.
SIZES = {
    "widths": (
        (f"13-d-d-2, full covariance, batch {BATCH}", "width", True, None),
        {d: ((13, d, d, 2), BATCH) for d in (50, 100, 200)},
    ),
    "batches": (
        (DEEP, "batch", True, 1.1),
        {rows: ((13, WIDTH, WIDTH, 2), rows) for rows in (16, 32, 64, 128)},
    ),
    "rows": (
        ("13-50-2, full covariance", "rows", False, None),
        {rows: ((13, 50, 2), rows) for rows in (100, 1000, 10_000, 100_000)},
    ),
    "large batches": (
        ("13-50-50-2, full covariance", "batch", False, 1.07),  # 4.4 times the time
        {rows: ((13, 50, 50, 2), rows) for rows in (1024, 4096)},
    ),
}
PARTS = ("updates", "widths", "batches", "activations", "rows", "large batches")


def main(arguments=None):
    options = harness.parse(
        __doc__,
        arguments,
        "--host --check --out --no-compiled",
        port=(Path, "checkout of the PyTorch port of DVI"),
        repeats=(40, "of the large networks"),
        only=(str, "one part", PARTS),
        largest=(100_000, "size that is tried"),
    )
    harness.run(options, measured, harness.by_host)


def measured(host, options):
    for part in PARTS:
        if options.only in (None, part):
            if part in SIZES:
                yield from grown(host, options, *SIZES[part])
            else:
                yield from {"updates": updates, "activations": activations}[part](host, options)


def updates(host, options):
    """Updates by Adam; in Pyro also losses with gradients, which its limits are of."""
    limits, repeats = UPDATE_LIMITS[options.host], options.repeats
    what, data = "13-50-2, batch 64", models.normals(host, 64)
    model = models.observed(host, host.network((13, 50, 2)), "heteroscedastic")
    names = [
        name for name in (REFERENCE, *limits) if not (options.no_compiled and COMPILED in name)
    ]

    def times(make, repeats, parts=1):
        made = {name: make(*models.contender(host, name), model, data)[0] for name in names}
        return timed(made, repeats, parts=parts)

    by_adam = partial(host.updates, SCANNED)
    if options.host == "numpyro":
        each = times(by_adam, repeats, SCANNED)
        yield from compared(f"{what}, update ({SCANNED} in a scan)", host.BY, each, limits)
        return
    gradients = times(host.elbo_step, 10 * repeats)
    yield from compared(f"{what}, loss and gradients", host.BY, gradients, limits)
    adam = times(by_adam, 10 * repeats)
    yield from compared(f"{what}, update with Pyro's Adam", host.BY, adam)
    if not options.no_compiled:
        alone = [(name, 1, False) for name in (FULL + COMPILED, REFERENCE)]
        ours, reference = in_processes(first_step, alone)
        what, ours = "13-50-1, batch 64, first step", replace(ours, name="compiled=True")
        yield Row(what, ours, host.BY, reference, FIRST_STEP, in_seconds=True)


def layer_step(host, sizes, rows, activation="relu"):
    """One ELBO of full covariance with its gradients."""
    model = models.observed(
        host, host.network(sizes, host.activation(activation)), "heteroscedastic"
    )
    pair, data = models.contender(host, FULL), models.normals(host, rows)
    return host.elbo_step(*pair, model, data, init_loc_fn=host.by_fan_in)[0]


def activations(host, options):
    contenders = {n: layer_step(host, (13, WIDTH, WIDTH, 2), BATCH, n) for n in ACTIVATIONS}
    found = timed(contenders, options.repeats)
    yield from compared(f"{DEEP}, batch {BATCH}", host.BY, found, ACTIVATION_LIMITS)


def grown(host, options, row, shapes):
    """A row for each size, beside the port if it is there; then the growth of each contender."""
    what, size, beside_port, limit = row
    port = options.port if beside_port else None
    shapes = {size: shape for size, shape in shapes.items() if size <= options.largest}
    tasks = [(options.host, options.repeats, port, *shape) for shape in shapes.values()]
    times = list(in_processes(of_size, tasks))
    for number, (*reference, ours) in zip(shapes, times, strict=True):
        allowed = PORT_LIMITS[options.host] if reference else None
        yield Row(f"{what}, {size} {number}", ours, host.BY, *reference, limit=allowed)
    for contenders in zip(*times, strict=True):
        name, seconds = contenders[0].name, tuple(getattr(part, host.BY) for part in contenders)
        allowed = limit if name == host.NAME else None
        yield Growth(what, size, name, host.BY, tuple(shapes), seconds, allowed)


def of_size(name, repeats, port, sizes, rows):
    """The port first, if it is there; with the peaks of memory where they are known."""
    host = harness.load(name, threads=1)
    with host.own_parameters():
        contenders = {} if port is None else {PORT: port_step(port, sizes, rows)}
        contenders[host.NAME] = layer_step(host, sizes, rows)
        times = timed(contenders, repeats)
        peaks = {name: host.peak(step) for name, step in contenders.items()}
    return [
        replace(times[name], mebibytes=None if peak is None else peak / 2**20)
        for name, peak in peaks.items()
    ]


def port_step(checkout, sizes, rows):
    """One ELBO of heteroscedastic regression with its gradients by a public PyTorch port of
    deterministic variational inference, from its own files; covariances are full.

    Only layers and losses are used; what else the port imports for its data sets may be missing.
    """
    import torch

    torch.set_num_threads(1)
    if importlib.util.find_spec("torchvision") is None:
        absent = types.ModuleType("torchvision")
        absent.datasets = absent.transforms = None
        sys.modules["torchvision"] = absent
    sys.path.insert(0, str(checkout))
    layers, losses = (importlib.import_module(f"core.{name}") for name in ("layers", "losses"))
    torch.manual_seed(0)
    network = port_network(torch, layers, sizes)
    loss = losses.RegressionLoss(network, port_options(rows))
    x, y = torch.randn(rows, 13), torch.randn(rows)
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]

    def step():
        for parameter in parameters:
            parameter.grad = None
        loss(network(x), y, 1)[0].backward()

    return step


def port_network(torch, layers, sizes):
    first, *rest = itertools.pairwise(sizes)
    others = (layers.ReluGaussian(*pair) for pair in rest)
    network = torch.nn.Sequential(layers.LinearGaussian(*first, certain=True), *others)
    with torch.no_grad():
        for layer in network:
            layer.W.normal_(std=layer.W.shape[0] ** -0.5)
            layer.bias.zero_()
            for logarithm in (layer.W_logvar, layer.bias_logvar):
                logarithm.fill_(SCALE**2).log_()
    return network


def port_options(rows):
    """The KL divergence has its full weight from the first step."""
    warm = {"warmup_updates": 0, "anneal_updates": 1, "batch_size": rows, "device": "cpu"}
    kind = {"method": "bayes", "heteroskedastic": True, "mcvi": False, "homo_log_var_scale": 0.0}
    return argparse.Namespace(**warm, **kind)


if __name__ == "__main__":
    main()
