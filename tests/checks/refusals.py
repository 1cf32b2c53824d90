"""What a refusal has to say, for the tests of both hosts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from moment_calculus.errors import UnsupportedMoments


class Refusal(NamedTuple):
    """A program, and what its refusal has to say: cause, latent sites, remedy."""

    run: Callable[[], Any]
    cause: str
    remedy: str
    sites: tuple[str, ...] = ()

    def check(self) -> None:
        """Run the program and read its refusal."""
        with pytest.raises(UnsupportedMoments) as raised:
            self.run()
        message = str(raised.value)
        assert re.search(self.cause, message), message
        assert re.search(self.remedy, message.partition("remedy: ")[2]), message
        assert raised.value.sites == tuple(sorted(self.sites))
