"""What the private APIs of JAX and NumPyro are used for, by their names."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as numpyro_dist
import pytest

from moment_calculus.numerics import private_apis as low
from numpyro_moments import _host as numpyro_host


def program():
    """x, y -> x², 3 with an equation that nothing needs."""

    def function(x, y):
        jnp.exp(y)
        return jax.jit(jnp.square)(x), 3.0

    return jax.make_jaxpr(function)(2.0, 1.0)


def trace_of():
    seen = []

    def inner(x, outside):
        seen.extend(low.trace_of(part) for part in (x, 2 * x, outside))
        return x

    jax.jit(lambda y: jax.jit(inner)(2 * y, y))(1.0)
    jax.jit(lambda y: jax.vmap(lambda x: inner(x, y))(jnp.ones(2)))(1.0)
    same = [seen[0] is seen[1], seen[3] is seen[4], seen[3] is not seen[5]]
    return all(same) and None not in seen and low.trace_of(jnp.ones(2)) is None


def is_traced():
    seen = []
    jax.jit(lambda x: (seen.append(low.is_traced(x)), x)[1])(1.0)
    return seen == [True] and not low.is_traced(jnp.ones(2))


def read():
    result, constant = program().jaxpr.outvars
    return low.read(result, {result: 4}) == 4 and low.read(constant, {}) == 3.0


def constants():
    return list(map(low.is_constant, program().jaxpr.outvars)) == [False, True]


def inside():
    call = low.without_dead_code(program().jaxpr).eqns[0]
    return [type(inner) for inner in low.programs_inside(call)] == [numpyro_host.Jaxpr]


def live():
    jaxpr = low.without_dead_code(program().jaxpr)
    return len(jaxpr.invars) == 2 and "exp" not in str(jaxpr)


def restricted():
    return low.restricted(program().jaxpr, [True, False])[1] == [True, False]


def primitives():
    primitive = numpyro_host.new_primitive("own", lambda x: numpyro_host.shaped((3,), x.dtype))
    (result,) = jax.make_jaxpr(primitive.bind)(jnp.ones(2)).out_avals
    return result.shape == (3,)


def equations():
    (call,) = low.without_dead_code(program().jaxpr).eqns
    return numpyro_host.apply_equation(call, [3.0]) == [9.0]


def evaluated():
    closed = program()
    return numpyro_host.evaluate(closed.jaxpr, closed.consts, 3.0, 1.0)[0] == 9.0


def validated():
    def model():
        with numpyro.plate("rows", 2, dim=-1):
            numpyro.sample("x", numpyro_dist.Normal(jnp.zeros((3, 2)), 1.0))

    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, jax.random.key(0))).get_trace()
    with pytest.warns(UserWarning, match="Missing a plate statement for batch dimension -2"):
        numpyro_host.validate_model(trace)
    return True


def around():
    handler = numpyro.handlers.scale(scale=2.0)
    with handler:
        inside = numpyro_host.active_handlers()
    return inside == [handler] and not numpyro_host.active_handlers()


def eager():
    with numpyro_host.evaluating_by(numpyro_host.EvalTrace()):
        inside = numpyro_host.is_evaluating()
        with numpyro_host.evaluating():
            back = numpyro_host.is_evaluating()
    return back and not inside and numpyro_host.weak(jnp.ones(2)).weak_type


JAX = {
    **dict.fromkeys(("evaluating_by", "evaluating", "is_evaluating", "weak", "EvalTrace"), eager),
    "is_traced": is_traced,
    "trace_of": trace_of,
    "read": read,
    "is_constant": constants,
    "programs_inside": inside,
    "primitives_in": lambda: {"jit", "square"} <= low.primitives_in(program().jaxpr.eqns),
    "without_dead_code": live,
    "restricted": restricted,
    "new_primitive": primitives,
    "shaped": primitives,
    "apply_equation": equations,
    "evaluate": evaluated,
    "validate_model": validated,
    "active_handlers": around,
    "ClosedJaxpr": lambda: isinstance(program(), numpyro_host.ClosedJaxpr),
}
