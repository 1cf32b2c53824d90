"""Run random programs: ``python -m tests.fuzzer --backend pyro --programs 1000 --seed 0``."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from tests.fuzzer.checking import Host, Verdict, jax_host, torch_host, verdict
from tests.fuzzer.operations import DROPOUT, OPERATIONS
from tests.fuzzer.programs import SCALE, Input, Program, generate, generate_with_dropout, pruned

os.environ.setdefault("JAX_PLATFORMS", "cpu")


ACCEPTED, ACCEPTED_OF_EACH = 0.8, 0.5


def main() -> int:
    """Report; 1 if anything is wrong or crashed, or too little is accepted."""
    options = _options()
    host = torch_host() if options.backend == "pyro" else _jax_host()
    make = generate_with_dropout if options.dropout else generate
    tried, left = [], options.show
    for seed in range(options.seed, options.seed + options.programs):
        program = make(seed)
        found = verdict(program, host, options.covariance)
        tried.append((program, found))
        if len(tried) % 100 == 0:
            host.forget()
        if found.failed and left:
            _show(program, found, host, options.covariance)
            left -= 1
    return 0 if _summarised(tried, options.refusals) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzer", description=__doc__)
    parser.add_argument("--backend", choices=("pyro", "numpyro"), default="pyro")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--covariance", choices=("full", "backward", "diagonal"), default="full")
    parser.add_argument("--dropout", action="store_true", help="programs with layers of dropout")
    parser.add_argument("--show", type=int, default=5, help="failures that are printed")
    parser.add_argument("--refusals", type=int, default=0, help="causes that are printed")
    return parser.parse_args()


def _show(program: Program, found: Verdict, host: Host, mode: str) -> None:
    """Print a failure at once, as short as it can be made."""

    def fails(shorter: Program) -> bool:
        return verdict(shorter, host, mode).kind == found.kind

    short = minimised(program, fails)
    print(f"{found.kind}: {verdict(short, host, mode).reason}")
    print(short.described(host.name), flush=True)


def _summarised(tried: list[tuple[Program, Verdict]], refusals: int) -> bool:
    """Print counts and shares; whether they are good enough."""
    verdicts = Counter(found.kind for _, found in tried)
    used = Counter(name for program, _ in tried for name in program.operations())
    served = Counter(
        name for program, found in tried if found.accepted for name in program.operations()
    )
    print(dict(verdicts))
    known = OPERATIONS | {DROPOUT.name: DROPOUT}
    shares = {name: served[name] / used[name] for name in known if used[name]}
    print(", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=_second)))
    causes = Counter(found.reason for _, found in tried if found.kind == "refused")
    for cause, count in causes.most_common(refusals):
        print(f"{count} refused: {cause}")
    accepted = verdicts["right"] + verdicts["warned"]
    failed = verdicts["wrong"] + verdicts["crashed"]
    easy = {name: share for name, share in shares.items() if not known[name].hard}
    rare = [name for name, share in easy.items() if share < ACCEPTED_OF_EACH]
    print(f"accepted {accepted / len(tried):.1%}; below one half: {', '.join(rare) or 'none'}")
    return not failed and not rare and accepted >= ACCEPTED * len(tried)


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


def _jax_host() -> Host:
    import jax

    from tests.checks.jaxprs import by_numpy

    jax.config.update("jax_enable_x64", True)
    return jax_host(by_numpy)  # traced as by jit, in a quarter of the time


def minimised(program: Program, still_fails: Callable[[Program], bool]) -> Program:
    """Shorten while the program fails."""
    for shorter in _shorter(program):
        if still_fails(shorter):
            return minimised(shorter, still_fails)
    return program


def _shorter(program: Program) -> Iterator[Program]:
    """Programs with an earlier output, or with an input in the place of a line."""
    for line in program.lines[:-1]:
        yield pruned(replace(program, output=line.result))
    for place, line in enumerate(program.lines[:-1]):
        lines = program.lines[:place] + program.lines[place + 1 :]
        inputs = {**program.inputs, line.result: _as_input(program, line.result)}
        yield pruned(replace(program, lines=lines, inputs=inputs))
    for name, one in program.inputs.items():
        if one.covariance is not None:
            plain = replace(one, covariance=None)
            yield replace(program, inputs={**program.inputs, name: plain})


def _as_input(program: Program, name: str) -> Input:
    """An independent input with the mean of a value."""
    means = [torch.as_tensor(one.mean) for one in program.inputs.values()]
    mean = program.values("torch", [name])(*means)[0].numpy().copy()
    return Input(mean, np.full(mean.shape, SCALE**2))


if __name__ == "__main__":
    sys.exit(main())
