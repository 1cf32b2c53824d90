"""Random numbers that a model draws besides its sites: the ELBO would be random in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _get_current_dispatch_mode

from moment_calculus.hosts.wording import drawn_in_silence
from moment_calculus.refusals.notices import called_by
from pyro_moments.evaluation.tensor import name_of
from pyro_moments.evaluation.user_line import user_line


def _state() -> list[torch.Tensor]:
    """State of the generators; those of CUDA only where it is in use.

    A program that is captured has run before; what looks at its tensors would see these.
    """
    if _get_current_dispatch_mode() is not None:
        return []
    states = [torch.get_rng_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


def _same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=False))


class Draws:
    """Whether the generators move other than for sites and the initial values of parameters."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin to watch."""
        self.silent, self.site, self._since = False, None, _state()

    def before(self, site: Any) -> None:
        """A site is drawn next.

        Args:
            site: its message.
        """
        self.silent = self.silent or not _same(self._since, _state())
        self.site = site

    def after(self) -> None:
        """A site was drawn, or a parameter made."""
        self.site, self._since = None, _state()

    def stopped(self) -> bool:
        """Whether anything was drawn besides."""
        self.before(None)
        return self.silent


class _Watched(TorchFunctionMode):
    """Refuses the first function that draws; modules may draw the values they begin with."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.draws = draws

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        before = _state()
        result = func(*args, **(kwargs or {}))
        drawn = self.draws.site is None and not _same(before, _state())
        if drawn and not called_by("torch.nn.init"):
            raise drawn_in_silence(name_of(func), user_line(), host="Pyro")
        return result


def refuse_silent_draws(draws: Draws, run: Callable[[], Any]) -> None:
    """Run a program that draws once more, and say where.

    Args:
        draws: what watched the first run.
        run: the program.

    Raises:
        UnsupportedMoments: naming the function and the user's line.
    """
    with _Watched(draws):
        run()
