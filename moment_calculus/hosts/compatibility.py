"""Check that a stored training belongs to the same model and the same kind of posterior."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moment_calculus.storage.errors import StoredFileError

Signature = dict[str, dict[str, Any]]  # by site: "family", "event" and "observed"


def settings_of(guide: Any) -> dict[str, Any]:
    """Return a guide's fixed settings (not parameters), for a guide of parts by their positions."""
    if hasattr(guide, "fixed_settings"):
        return guide.fixed_settings()
    parts = enumerate(guide) if isinstance(guide, Iterable) else ()
    settings_by_part = ((str(key), settings_of(part)) for key, part in parts)
    return {key: settings for key, settings in settings_by_part if settings}


def check_posterior(path: Any, stored: Any, current: dict[str, Any]) -> None:
    """Raise StoredFileError, naming the first difference, if the guide's settings differ."""
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
    """Raise StoredFileError if the models differ in more than which sites are observed."""
    # Sites that the stored model observed may be absent here.
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
