"""Refusals and warnings point to the user's line, through JAX, hosts and network libraries."""

import importlib.util
import inspect
import sys
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from numpyro_moments import Moments, UnsupportedMoments, propagate
from numpyro_moments.evaluation.user_line import fed_by, line_of

X = Moments(np.ones((2, 3), np.float32), variance=np.ones((2, 3), np.float32))


def refused(function):
    with pytest.raises(UnsupportedMoments) as raised:
        propagate(function, X)
    return raised.value


def line_with(function, text):
    lines, first = inspect.getsourcelines(function)
    return next(first + i for i, line in enumerate(lines) if text in line)


@jax.jit
def unsupported(x):
    return jax.scipy.special.digamma(x)  # here


@jax.jit
def layers(x):
    return jax.checkpoint(unsupported)(x)


def test_line_is_the_innermost_of_the_user():
    where = refused(lambda x: layers(2 * x)).location
    assert where.startswith(f"{__file__}:{line_with(unsupported, '# here')}")


def test_operation_names_the_functions_around_it():
    assert refused(layers).operation == "digamma in unsupported in remat2 in layers"


def test_line_of_a_function_of_jax_is_where_it_is_called():
    """jnp.linalg.slogdet is a jit of JAX: its own equations have no line of the user."""

    def model(x):
        return jnp.linalg.slogdet(x[:, :2])[1]  # here

    where = refused(model).location
    assert where.startswith(f"{__file__}:{line_with(model, '# here')}")


def test_second_call_of_one_function_has_its_own_line():
    def model(x):
        first = jax.nn.softplus(jnp.ones(3))
        return first + jnp.linalg.slogdet(x[:, :2])[1]  # here

    propagate(lambda x: x * jnp.linalg.slogdet(jnp.eye(2))[1], X)
    where = refused(model).location
    assert where.startswith(f"{__file__}:{line_with(model, '# here')}")


def imported(path, source):
    path.write_text(source)
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def test_model_in_an_installed_package_has_lines(tmp_path):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    source = "import jax\n\ndef model(x):\n    return jax.scipy.special.digamma(x)\n"
    module = imported(folder / "installed_model.py", source)
    assert refused(module.model).location.startswith(f"{folder}/installed_model.py:4")


@pytest.mark.parametrize(
    "file",
    ["<stdin>", f"{tempfile.gettempdir()}/ipykernel_12/3456.py"],
    ids=["interpreter", "notebook"],
)
def test_cells_of_notebooks_have_lines(file):
    source = "import jax\ndef model(x):\n    return jax.scipy.special.digamma(x)\n"
    names: dict = {}
    exec(compile(source, file, "exec"), names)  # as an interpreter does
    assert refused(names["model"]).location.startswith(f"{file}:3")


def test_networks_of_flax_are_skipped_and_named():
    linen = pytest.importorskip("flax.linen")

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x):
            return jax.scipy.special.digamma(linen.Dense(2)(x))  # here

    network = Network()
    parameters = network.init(jax.random.key(0), jnp.ones((2, 3)))
    where = refused(lambda x: network.apply(parameters, x)).location
    assert where == f"{__file__}:{line_with(Network.__call__, '# here')} in Network"


def test_line_inside_flax_is_where_the_user_calls_it():
    linen = pytest.importorskip("flax.linen")

    program = jax.make_jaxpr(lambda x: linen.avg_pool(x, (2,)))(jnp.ones((1, 4, 3)))  # there
    lines = {line_of(equation) for equation in program.eqns}
    expected = line_with(test_line_inside_flax_is_where_the_user_calls_it, "# there")
    assert lines == {(__file__, expected)}


def test_outputs_that_an_equation_leads_to():
    def program(x):
        y = jnp.sin(x)
        z = jax.jit(jnp.cos)(y)
        return x + 1, y * 2, z, z + 1

    jaxpr = jax.make_jaxpr(program)(1.0).jaxpr
    sine = next(e for e in jaxpr.eqns if e.primitive.name == "sin")
    cosine = next(e for e in jaxpr.eqns if e.primitive.name == "jit")
    names = ["a", "b", "c", "c"]
    assert fed_by(sine, jaxpr, names) == ("b", "c")
    assert fed_by(cosine, jaxpr, names) == ("c",)
    assert fed_by(cosine, jaxpr, ["a", "b", "", ""]) == ()
    assert fed_by(cosine, jaxpr, []) == ()
