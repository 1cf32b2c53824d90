"""What a fit remembers of its objective, in memory and in a stored file."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moment_calculus.values.propagation import Propagation, RuleBook, half_of_memory
from moment_inference.optimisation.outcome import Fit
from moment_inference.optimisation.storage.files import StoredFileError, read

# How a loss is computed, not which: a training may go on with others.
OF_EXECUTION = frozenset(
    "compiled memory_limit vectorize_particles max_plate_nesting strict_enumeration_warning "
    "ignore_jit_warnings jit_options retain_graph sum_sites".split()
)
ANALYTIC = "analytic"  # how latent sites flow in predictions, unless the objective says more
_NOT_STORED = object()


class KeepsOptions:
    """An object that remembers the options that it was made with."""

    made_with: dict[str, Any]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Return a new object with its options by name."""
        made = super().__new__(cls)
        made.made_with = dict(_by_name(cls, args, options))
        return made


def _by_name(cls: type, args: tuple, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield options by name, positional ones too; nothing where ``__init__`` takes no such."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **options)
    except TypeError:  # which __init__ raises in its own words
        return
    for name, value in [*bound.arguments.items()][1:]:
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        yield from value.items() if is_rest else [(name, value)]


def options_of(objective: Any) -> dict[str, Any]:
    """Return the options of an objective by name, but for those that have their default.

    Objectives of the frameworks keep each option in an attribute of its name.
    """
    parameters = inspect.signature(type(objective).__init__).parameters
    defaults = {name: part.default for name, part in parameters.items()}
    kept = getattr(objective, "made_with", None)
    if kept is None:
        kept = {name: getattr(objective, name) for name in defaults if hasattr(objective, name)}
    return {n: v for n, v in kept.items() if not _is_default(v, defaults.get(n, _NOT_STORED))}


def _is_default(value: Any, default: Any) -> bool:
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value is default or (is_plain and value == default)


def described(objective: Any) -> str:
    """Return an objective as its user wrote it: ``BBAlphaELBO(alpha=0.5)``."""
    if isinstance(objective, ForgottenObjective):
        return objective.text
    return _text(type(objective).__name__, options_of(objective))


def _text(name: str, options: Mapping[str, Any]) -> str:
    values = {n: v.name if isinstance(v, RuleBook) else v for n, v in options.items()}
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in values.items())})"


@dataclass
class ForgottenObjective:
    """The objective of a loaded fit, of which the file does not have all."""

    text: str  # what the file tells of it; empty if it tells nothing
    path: Any
    record: dict[str, Any] | None = None  # as the file has it
    propagation: Propagation | None = None  # if this is known
    propagation_kind: str = ANALYTIC
    lacks_rules: bool = False  # whether its rule book is one that the file does not hold
    warned: bool = field(default=False, compare=False)

    def error(self, what: str, option: str) -> ValueError:
        """Return the error for a verb that needs what the file does not hold."""
        return ValueError(
            f"the fit was trained by {self.text}, and {self.path} does not hold {what}, which is "
            f"your own code: pass {option}, or load(..., objective=) with the objective"
        )

    def warn(self) -> None:
        """Say once that the file does not tell the objective."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.path} was written before files told the objective of a fit: "
                "DeterministicELBO() is taken; pass objective= to load if it was another",
                UserWarning,
                stacklevel=4,
            )


def remembered_objective(fit: Any) -> Any:
    """Return the objective of a fit; None for a guide, and where nothing is known of it."""
    objective = fit.objective if isinstance(fit, Fit) else None
    if isinstance(objective, ForgottenObjective) and not objective.text:
        objective.warn()
        return None
    return objective


def kind_of(objective: Any) -> str:
    """Return how latent sites flow in predictions as of an objective.

    Objectives that draw them since nothing else is possible, such as ``RenyiELBO``, name none.
    """
    return getattr(objective, "propagation_kind", ANALYTIC)


def objective_of(fit: Any, objective: Any = None) -> Any:
    """Return the user's objective, or else that of a fit; None for the default.

    Raises:
        ValueError: if a file names the objective, and cannot hold it.
    """
    if objective is not None:
        return objective
    objective = remembered_objective(fit)
    if isinstance(objective, ForgottenObjective):
        raise objective.error("its class or an option of it", "objective=")
    return objective


@dataclass(frozen=True)
class KnownObjectives:
    """The objectives that a front end's files hold: its own and the framework's."""

    front_end: str  # its name
    classes: Mapping[str, type]  # by package and name, as in "pyro_moments.RenyiELBO"
    books: Mapping[str, RuleBook]  # the library's by name

    @classmethod
    def of(
        cls, front_end: str, own: Collection[type], inference: Any, books: Mapping[str, RuleBook]
    ) -> KnownObjectives:
        """Return those of a front end, and of the module of inference of its framework."""
        candidates = [part for part in vars(inference).values() if isinstance(part, type)]
        theirs = [part for part in candidates if issubclass(part, inference.ELBO)]
        return cls(front_end, {_key(part): part for part in (*own, *theirs)}, books)

    def record(self, objective: Any) -> dict[str, Any] | None:
        """Return what a file holds of an objective; None if nothing is known of it."""
        if objective is None or isinstance(objective, ForgottenObjective):
            return getattr(objective, "record", None)
        options = {name: self._plain(value) for name, value in options_of(objective).items()}
        is_known = self.classes.get(_key(type(objective))) is type(objective)
        return {
            "class": _key(type(objective)),
            "options": {n: value for n, value in options.items() if value is not _NOT_STORED},
            "is_whole": is_known and _NOT_STORED not in options.values(),
            "text": described(objective),
            "propagation": self._propagation(objective),
        }

    def objective(self, record: dict[str, Any] | None, path: Any) -> Any:
        """Return the objective of a record, as far as the file holds it."""
        if record is None:
            return ForgottenObjective("", path)
        made = self.classes.get(record["class"])
        if record["is_whole"] and made is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the training has warned of its options
                return made(**record["options"])
        how = record["propagation"] or {}
        kind, book = how.get("kind", ANALYTIC), self.books.get(how.get("rules") or "")
        lacks_rules = bool(how) and book is None
        forgotten = ForgottenObjective(record["text"], path, record, None, kind, lacks_rules)
        if how:
            forgotten.propagation = Propagation(
                how["covariance"],
                book or self.books["exact"],
                how["categorical"],
                half_of_memory(),
                how["categorical_draws"],
                how["by_guide"],
            )
        return forgotten

    def resumed(self, path: Any, objective: Any, guide: Any) -> Any:
        """Return the objective of a training that may go on from a checkpoint.

        Raises:
            StoredFileError: if it is another than that of the checkpoint, or the user names
                none and the file cannot hold it.
        """
        if path is None or not Path(path).exists():
            return objective
        header, _ = read(path)
        record = header.get("objective")
        if record is None or header.get("host") != self.front_end:
            return objective
        if objective is None:
            found = self.objective(record, path)
            if not isinstance(found, ForgottenObjective):
                return found
            raise StoredFileError(
                f"is a checkpoint of a fit by {found.text}, of which the class or an option is "
                "your own code, which no file holds",
                path=path,
                remedy="fit with the same objective=",
            )
        new = self.record(objective)
        assert new is not None
        if _compared(record, guide) != _compared(new, guide):
            raise StoredFileError(
                f"is a checkpoint of another fit: its objective was {record['text']}, and is "
                f"{new['text']} now",
                path=path,
                remedy="leave objective= out to go on with the checkpoint's, or take another path "
                "to begin anew",
            )
        return objective

    def _propagation(self, objective: Any) -> dict[str, Any] | None:
        how = getattr(objective, "propagation", None)
        if not isinstance(how, Propagation):
            return None
        rules = self._plain(how.rulebook)
        return {
            "covariance": how.covariance,
            "by_guide": how.by_guide,
            "rules": None if rules is _NOT_STORED else rules,
            "categorical": how.categorical,
            "categorical_draws": how.categorical_draws,
            "kind": getattr(objective, "propagation_kind", ANALYTIC),
        }

    def _plain(self, value: Any) -> Any:
        """Return an option as JSON has it."""
        if isinstance(value, RuleBook):
            found = self.books.get(value.name)
            return value.name if found is value else _NOT_STORED
        if value is None or isinstance(value, bool | str):
            return value
        if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
            value = value.item()
        if isinstance(value, int | float):
            return int(value) if isinstance(value, int) else float(value)
        is_collection = isinstance(value, Collection) and not isinstance(value, Mapping)
        if is_collection and all(isinstance(part, str) for part in value):
            return sorted(value)
        return _NOT_STORED


def _key(cls: type) -> str:
    return f"{cls.__module__.split('.')[0]}.{cls.__qualname__}"


def _compared(record: dict[str, Any], guide: Any) -> Any:
    """Return what two records have in common if a training may go on from one by the other."""
    how = dict(record["propagation"] or {})
    if how.pop("by_guide", False):
        how["covariance"] = getattr(guide, "default_covariance", None) or how["covariance"]
    left_out = {*OF_EXECUTION, *how, "propagation"}
    options = {n: value for n, value in record["options"].items() if value and n not in left_out}
    # A class of the user's may be in another module when the program is run again.
    name = record["class"] if record["is_whole"] else record["class"].rsplit(".", 1)[-1]
    return name, options, how
