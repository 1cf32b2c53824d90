"""Whether a stored training is of the same model and the same kind of posterior."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moment_calculus.storage.errors import StoredFileError

Signature = dict[str, dict[str, Any]]  # of a model: what is fixed of each of its sites


def settings_of(guide: Any) -> dict[str, Any]:
    """What belongs to the posterior of a guide and is no parameter; empty where nothing does.

    Args:
        guide: the guide; one made of others has the settings of its parts, by their places.
    """
    if hasattr(guide, "fixed_settings"):
        return guide.fixed_settings()
    parts = enumerate(guide) if isinstance(guide, Iterable) else ()
    found = ((str(place), settings_of(part)) for place, part in parts)
    return {place: settings for place, settings in found if settings}


def check_posterior(path: Any, stored: Any, current: dict[str, Any]) -> None:
    """Refuse other settings of the guide: its parameters would be those of another posterior.

    Args:
        path: the file.
        stored: the settings in it.
        current: those of the guide.

    Raises:
        StoredFileError: naming the first that differs.
    """
    stored = stored if isinstance(stored, dict) else {}
    for name in sorted({*stored, *current}, key=lambda n: (not (n in stored and n in current), n)):
        if stored.get(name) != current.get(name):
            options = ", ".join(f"{name}={value!r}" for name, value in stored.items())
            raise StoredFileError(
                f"is of another posterior: {name} of the guide was {stored.get(name)!r}, and is "
                f"{current.get(name)!r} here",
                path=path,
                remedy=f"load it into a guide with the same settings ({options or 'none stored'})",
            )


def check_model(path: Any, stored: Signature, current: Signature) -> None:
    """Refuse another model; what is observed there may be open here, and the other way round.

    Args:
        path: the file.
        stored: the sites in it.
        current: those of the model.

    Raises:
        StoredFileError: naming what differs.
    """
    missing = [
        name for name, site in stored.items() if name not in current and not site.get("observed")
    ]
    new = [name for name in current if name not in stored]
    remedy = "load it with the model that it was trained with"
    if missing or new:
        parts = [
            f"its model has the latent site {', '.join(map(repr, missing))}" if missing else "",
            f"this one has {', '.join(map(repr, new))} besides" if new else "",
        ]
        what = "; ".join(filter(None, parts))
        raise StoredFileError(f"is of another model: {what}", path=path, remedy=remedy)
    for name, site in current.items():
        for part in ("family", "event"):
            if stored[name].get(part) != site[part]:
                raise StoredFileError(
                    f"is of another model: the {_PARTS[part]} of site '{name}' is "
                    f"{stored[name].get(part)} there and {site[part]} here",
                    path=path,
                    remedy=remedy,
                )


_PARTS = {"family": "distribution", "event": "event shape"}
