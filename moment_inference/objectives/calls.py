"""Check calls of the public functions: what each argument is, names of options, the model's data.

The front ends say what a framework's own objects are; messages are the same in both.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from moment_calculus.numerics.one_thread import one_thread_at_a_time
from moment_calculus.predictions.frames import is_frame
from moment_calculus.predictions.moments import Moments
from moment_inference.objectives.arguments import (
    brief,
    check_call,
    columns_by_name,
    with_arrays,
)
from moment_inference.optimisation.batches import Arguments, is_loader
from moment_inference.optimisation.outcome import Fit, check_dictionary, knows_sites

Verb = TypeVar("Verb", bound=Callable[..., Any])
# Names of other libraries for options of ``fit``, beyond those that are nearly the same.
SYNONYMS = {
    "lr": "learning_rate",
    "optim": "optimiser",
    "loss": "objective",
    "elbo": "objective",
    "num_steps": "steps",
    "n_steps": "steps",
    "num_iter": "steps",
    "iterations": "steps",
    "n_epochs": "epochs",
    "tol": "tolerance",
    "rng_key": "seed",
    "key": "seed",
    "random_state": "seed",
    "init_params": "params",
    "val_data": "held_out",
    "validation_data": "held_out",
    "num_samples": "num_particles",
    "draws": "num_samples",
    "verbose": "progress_bar",
    "dtype": "float64",
}
# Options that take arguments of the model.
ARGUMENTS = ("held_out", "test", "predictions")
TAKE_MOMENTS = ("fit", "predict")
GUIDES = {"AutoGuide", "AutoGuideList", "AutoMessenger"}
NESTED = "NestedPosterior"
POSTERIORS = {"Fit", "MCMC", "Response", NESTED, *GUIDES}
NEED_NO_GUIDE = ("nested",)  # verbs that take one all the same
TAKE_NESTED = ("compare_with_nuts", "diagnose", "predict")  # of the verbs of guides
CONTAINERS = ("InferenceData", "DataTree")  # of both lines of ArviZ
TAKE_CONTAINERS = ("loo", "predictive_p_values", "to_inference_data")
AUTOMATIC = {*GUIDES, "ELBO", "SVI", "MCMC", "Response"}


def check_certain(verb: str, data: tuple, by_name: Mapping[str, Any]) -> None:
    """Raise TypeError for moments among the arguments of a model where they must be certain."""
    parts = {**{f"argument {index}": part for index, part in enumerate(data)}, **by_name}
    uncertain = [name for name, part in parts.items() if isinstance(part, Moments)]
    if uncertain and verb not in TAKE_MOMENTS:
        raise TypeError(
            f"{verb} takes certain arguments of the model, and {uncertain[0]} is Moments: "
            f"{' and '.join(TAKE_MOMENTS)} and the objectives take uncertain ones; pass its mean "
            "here, or declare the inputs as a latent site of the model"
        )


def kinds(value: object) -> set[str]:
    """Return the names of the classes of a value that messages speak of."""
    return {base.__name__ for base in type(value).__mro__} & {*AUTOMATIC, "Fit", NESTED}


def named(value: object) -> str:
    """Describe a value for a message, by its class and its shape if it has one."""
    shape = getattr(value, "shape", None)
    shown = "" if shape is None else f" {[*shape]}"
    return f"a class, {value.__name__}" if isinstance(value, type) else type(value).__name__ + shown


@dataclass(frozen=True)
class Calls:
    """Checks the calls of one framework's public functions."""

    framework: str  # its name as users write it
    foreign: tuple[str, ...]  # packages of the other framework's programs
    unwrap: Callable[[Any], Any]  # returns the function inside the framework's handlers
    own: type | tuple[type, ...]  # the framework's arrays
    # Makes one of NumPy's, or casts one, in double precision if asked.
    convert: Callable[[Any, bool], Any]
    optimiser: str  # an optimiser as users write it
    is_untrained: Callable[[Any, Any], bool]  # whether a guide has parameters nowhere
    makers: tuple[str, ...] = ()  # packages whose classes serve as optimisers
    # Returns whether a model draws in double precision, given its arguments.
    draws_doubles: Callable[[Any, tuple, dict[str, Any]], bool] = lambda *_: False

    def checked(self, verb: Verb, passes_to: Callable | None = None) -> Verb:
        """Decorate a public function, whose arguments are checked and made arrays."""
        # ``passes_to`` is a function that takes the options beyond its own.
        signature, name = inspect.signature(verb), verb.__name__
        options = [*_options(signature), *_options(inspect.signature(passes_to or verb))]

        @one_thread_at_a_time
        @functools.wraps(verb)
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs, args = in_our_spelling(name, kwargs, options), in_our_order(name, args)
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name} takes {brief(signature)}: {error}") from None
            bound.apply_defaults()
            self.prepare(name, signature, options, bound.arguments)
            return verb(*bound.args, **bound.kwargs)

        return call  # type: ignore[return-value]

    def prepare(
        self,
        verb: str,
        signature: inspect.Signature,
        options: list[str],
        arguments: dict[str, Any],
    ) -> None:
        """Check the arguments of a call, and replace the model's data by arrays."""
        self.check_roles(verb, arguments)
        kind = {part.kind: name for name, part in signature.parameters.items()}
        data_name = kind.get(inspect.Parameter.VAR_POSITIONAL, "")
        options_name = kind.get(inspect.Parameter.VAR_KEYWORD, "")
        model = arguments.get("model")
        if not options_name or model is None:
            return
        data, by_name = arguments.get(data_name, ()), arguments.get(options_name, {})
        guide, params = arguments.get("guide"), arguments.get("params")
        if verb == "save" and knows_sites(guide, params, data, by_name):
            return
        given = dict(by_name)
        passed = {name: given.pop(name) for name in [*given] if name in options}
        leading, parameters = _leading(arguments), self.parameters(model)
        own = (*leading, *data), given
        data, by_name = self._of_model(verb, model, own, parameters, options)
        check_certain(verb, data, by_name)
        double = is_double(arguments) or self.draws_doubles(model, data, by_name)
        as_array = lambda array: self.convert(array, double)  # noqa: E731
        data, by_name = with_arrays(data, by_name, [*parameters], self.own, as_array)
        for option in ARGUMENTS:
            if arguments.get(option) is not None and not is_loader(arguments[option]):
                arguments[option] = self._option(arguments[option], parameters, as_array)
        if leading:
            arguments["params"], data = (data[0], data[1:]) if data else (None, ())
        arguments[data_name], arguments[options_name] = data, {**passed, **by_name}

    def _of_model(
        self, verb: str, model: Any, given: Arguments, parameters: Any, options: list[str]
    ) -> Arguments:
        """Return the arguments of the model, which takes them."""
        data, by_name = explicit_data(*given, parameters)
        if any(map(is_loader, data)):
            check_names(verb, by_name, options, parameters)
            return data, by_name
        data, by_name = columns_by_name(data, by_name, parameters)
        check_names(verb, by_name, options, parameters)
        bound = check_call(self.unwrap(model), data, by_name, verb)
        if bound is not None and {*by_name} & {*options}:
            bound.apply_defaults()  # an argument that is named like an option goes by its place
            return bound.args, bound.kwargs
        return data, by_name

    def check_roles(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """Raise TypeError if a model, guide, objective or optimiser is something else."""
        model, guide = arguments.get("model"), arguments.get("guide", arguments.get("posterior"))
        has_guide = "guide" in arguments and (guide is not None or verb not in NEED_NO_GUIDE)
        if "model" in arguments and (model is not None or has_guide):
            self._check_model(verb, model, guide, has_guide)
        if has_guide:
            self._check_guide(verb, guide, arguments.get("params"))
        self._check_objective(verb, arguments.get("objective"))
        if arguments.get("params") is not None and not _has_parameters(guide):
            check_dictionary(arguments["params"])
        self.check_optimiser(arguments.get("optimiser"))
        data = arguments.get("data", arguments.get("args", ()))
        for part in data if isinstance(data, tuple) else ():
            self._check_datum(verb, part)

    def parameters(self, model: Any) -> dict[str, inspect.Parameter]:
        """Return a model's parameters by name; empty if they are unknown."""
        function = self.unwrap(model)
        try:
            return dict(inspect.signature(getattr(function, "forward", function)).parameters)
        except (TypeError, ValueError):
            return {}

    def makes_optimisers(self, value: Any) -> bool:
        """Return whether a value is a class or a function of the framework's optimisers."""
        package = f"{self.framework.lower()}.optim"
        return callable(value) and str(getattr(value, "__module__", "")).startswith(package)

    def check_optimiser(self, optimiser: Any) -> None:
        """Raise TypeError for a class, and for an optimiser or a loss of the other framework."""
        is_class = isinstance(optimiser, type) and not optimiser.__module__.startswith(self.makers)
        is_maker = inspect.isfunction(optimiser) and self.makes_optimisers(optimiser)
        if is_class or is_maker:
            name = optimiser.__name__
            role = "loss" if name.endswith("ELBO") else "optimiser"
            example = f"{name}()" if role == "loss" else self.optimiser
            raise TypeError(f"the {role} is a class, {name}: make an object of it, as in {example}")
        self._check_framework("optimiser or loss", optimiser)

    def _option(self, value: Any, parameters: Any, as_array: Any) -> Any:
        if is_frame(value):
            data, by_name = columns_by_name((value,), {}, parameters)
            value = data or tuple(by_name[name] for name in parameters if name in by_name)
        if isinstance(value, Mapping):
            return with_arrays((), value, [], self.own, as_array)[1]
        if not isinstance(value, tuple | list):
            return value
        return type(value)(with_arrays(tuple(value), {}, [*parameters], self.own, as_array)[0])

    def _check_model(self, verb: str, model: Any, guide: Any, has_guide: bool) -> None:
        if isinstance(model, type):
            raise TypeError(
                f"the model is a class, {model.__name__}: make an object of it, "
                f"{model.__name__}(...)"
            )
        found, second = kinds(model), "guide" if has_guide else "posterior"
        if (
            found & {"Fit", "Response", NESTED, *GUIDES}
            and callable(guide)
            and not kinds(guide) & GUIDES
        ):
            raise TypeError(
                f"{second} and model are in the other order: the model is {named(model)}; call "
                f"{verb}(model, {second}, ...)"
            )
        if found & {"Fit", "SVI"}:
            raise TypeError(
                f"the model is {named(model)}: pass the function that calls "
                f"{self.framework.lower()}.sample first, as in {verb}(model, {second}, ...)"
            )
        if not callable(model):
            raise TypeError(
                f"the model is {named(model)}, which cannot be called: the first argument of "
                f"{verb} is a function that calls {self.framework.lower()}.sample"
            )
        self._check_framework("model", model)

    def _check_trained(self, verb: str, guide: Any, params: Any) -> None:
        """Raise TypeError for a guide without parameters where trained ones are needed."""
        if verb in ("fit", "SVI", "load") or not kinds(guide) & GUIDES:
            return
        is_new = verb == "predict" and self.is_untrained(guide, params)
        if is_new or (isinstance(params, Mapping) and not params):
            raise TypeError(
                f"the guide {type(guide).__name__} has not been trained: pass what fit returned, "
                f"{verb}(model, result, ...), or its guide and parameters"
            )

    def _check_guide(self, verb: str, guide: Any, params: Any = None) -> None:
        check_is_object("guide", guide, "DVIGuide()")
        found = kinds(guide)
        self._check_trained(verb, guide, params)
        if "Fit" in found and verb in ("fit", "SVI", "load"):
            raise TypeError(
                f"the guide is what fit returned: to go on from there, pass a new guide and "
                f"start=result to fit, or result.guide to {verb}"
            )
        if NESTED in found and verb not in TAKE_NESTED:
            raise TypeError(
                f"the guide is what nested returned, and {verb} takes a trained guide or what fit "
                f"returned: {', '.join((*TAKE_NESTED, *TAKE_CONTAINERS))} take it, and it has "
                "marginals, draws, plots and files (save) of its own"
            )
        if found & {"MCMC", "Response"}:
            raise TypeError(
                f"the guide is {named(guide)}, and {verb} takes a trained guide or what fit "
                "returned: pass finished chains to to_inference_data, or to compare_with_nuts as "
                "reference=; a linear response has its own predict, sample and moments"
            )
        if "SVI" in found:
            raise TypeError(f"the guide is an SVI: pass its guide, svi.guide, to {verb}")
        if "ELBO" in found:
            raise TypeError(
                f"the guide is {named(guide)}, an objective: pass a guide such as DVIGuide() after "
                "the model, and the objective by name, objective="
            )
        if not found & {"Fit", NESTED} and not callable(guide):
            raise TypeError(
                f"the guide is {named(guide)}, which cannot be called: after the model comes a "
                "guide such as DVIGuide(), or what fit returned"
            )
        self._check_framework("guide", guide)

    def _check_objective(self, verb: str, objective: Any) -> None:
        if objective is None:
            return
        check_is_object("objective", objective, "DeterministicELBO()")
        self._check_framework("objective", objective)
        if not hasattr(objective, "loss"):
            raise TypeError(
                f"the objective is {named(objective)}, and {verb} takes an ELBO: pass "
                "DeterministicELBO(), BBAlphaELBO() or one of the framework's own"
            )

    def _check_datum(self, verb: str, datum: Any) -> None:
        """Raise TypeError for a guide or an objective among the model's arguments."""
        found = kinds(datum) | ({"Fit"} if isinstance(datum, Fit) else set())
        if found & GUIDES:
            raise TypeError(
                f"{verb} got a second guide, {named(datum)}, among the model's arguments: pass one "
                "guide after the model, then the data"
            )
        if found:
            option = "objective=" if "ELBO" in found else "start=" if "Fit" in found else "name"
            raise TypeError(
                f"{verb} got {named(datum)} among the model's arguments: pass it by {option}, and "
                "only data after the guide"
            )

    def _check_framework(self, role: str, value: Any) -> None:
        """Raise TypeError if a class of the value belongs to the other framework."""
        modules = [base.__module__ for base in type(value).__mro__]
        if any((module + ".").startswith(self.foreign) for module in modules):
            package = f"{self.framework.lower()}_moments"
            raise TypeError(
                f"the {role} {type(value).__name__} is not of {self.framework}: import it from "
                f"{package}, and do not mix the two frameworks"
            )


def in_our_order(verb: str, args: tuple) -> tuple:
    """Return the arguments of a call with the model first, also those of the former order."""
    if verb not in TAKE_CONTAINERS or not args:
        return args
    if type(args[0]).__name__ in CONTAINERS:
        return (None, *args)  # has all that the model would tell
    first, second = (*args, None)[:2]
    if len(args) == 1 and kinds(first) & POSTERIORS:
        return (None, first)
    if not kinds(first) & POSTERIORS or kinds(second) & POSTERIORS or not callable(second):
        return args
    warnings.warn(
        f"{verb} takes the model first, as all verbs do: write {verb}(model, posterior, ...); the "
        "former order goes with a later version",
        FutureWarning,
        stacklevel=4,
    )
    return (second, first, *args[2:])


def check_is_object(role: str, value: Any, example: str) -> None:
    """Raise TypeError for a class, of which an object is needed."""
    if isinstance(value, type):
        made = f"{value.__name__}()"
        raise TypeError(
            f"the {role} is a class, {value.__name__}: make an object of it, {made}"
            + (f", as in {example}" if example != made else "")
        )


def in_our_spelling(verb: str, named: dict[str, Any], options: Collection[str]) -> dict[str, Any]:
    """Return options by name, ``optimizer`` as ``optimiser``; raise TypeError for both."""
    if "optimizer" not in named or "optimiser" not in options:
        return named
    if "optimiser" in named:
        raise TypeError(
            f"{verb} got optimiser and optimizer, which are one option: pass one of them"
        )
    return {"optimiser" if name == "optimizer" else name: part for name, part in named.items()}


def explicit_data(
    data: tuple, by_name: dict[str, Any], parameters: Mapping[str, Any]
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of the model, where ``data=`` may have all of them."""
    if "data" not in by_name or "data" in parameters or data:
        return data, by_name
    given = by_name.pop("data")
    if isinstance(given, Mapping) and not is_frame(given):
        return (), {**by_name, **given}
    if isinstance(given, tuple | list):
        return tuple(given), by_name
    return (given,), by_name


def check_names(
    verb: str,
    by_name: Mapping[str, Any],
    options: list[str],
    parameters: Mapping[str, inspect.Parameter],
) -> None:
    """Raise TypeError for a name that is no option and no argument of the model."""
    if not parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in by_name:
        if name in parameters:
            continue
        near = [SYNONYMS[name]] if SYNONYMS.get(name) in options else []
        near = near or difflib.get_close_matches(name, [*options, *parameters], 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else f"its options are {', '.join(options)}"
        raise TypeError(
            f"{verb} has no option '{name}', and the model no argument of that name: {hint}"
        )


def is_double(arguments: Mapping[str, Any]) -> bool:
    """Return whether a call computes in double precision, by its option or its parameters."""
    if arguments.get("float64"):
        return True
    guide = arguments.get("guide", arguments.get("posterior"))
    if NESTED in kinds(guide):
        return True
    params = guide.params if isinstance(guide, Fit) else arguments.get("params")
    own = getattr(guide, "parameters", None)
    leaves = params.values() if isinstance(params, Mapping) else own() if callable(own) else ()
    return any("float64" in str(getattr(leaf, "dtype", "")) for leaf in leaves)


def _has_parameters(guide: Any) -> bool:
    """Return whether none are passed beside a guide: it is what ``fit`` or ``nested`` returned."""
    return isinstance(guide, Fit) or NESTED in kinds(guide)


def _leading(arguments: dict[str, Any]) -> tuple:
    """Return data that stand where parameters would, after what ``fit`` or ``nested`` returned."""
    params = arguments.get("params")
    is_data = _has_parameters(arguments.get("guide")) and params is not None
    return (params,) if is_data and not isinstance(params, Mapping) else ()


def _options(signature: inspect.Signature) -> Iterator[str]:
    """Yield the names of a function's options."""
    yield from (n for n, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY)
