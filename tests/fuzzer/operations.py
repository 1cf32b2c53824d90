"""The operations of the random programs: one table, in the spellings of both hosts."""

import numpy as np

from tests.fuzzer import drawing, patterns
from tests.fuzzer.gates import GATES
from tests.fuzzer.kinds import Operation, both, each
from tests.fuzzer.windows import WINDOWS


def smooth(name: str, torch: str, jax: str = "", **options) -> Operation:
    """A function of every element."""
    return each(name, drawing.nothing, f"{torch}({{0}})", f"{jax or torch}({{0}})", **options)


def _at_zero(drawn: dict, value: np.ndarray) -> bool:
    return bool(np.abs(value).min() < 0.1)


def _at_bounds(drawn: dict, value: np.ndarray) -> bool:
    return any(_at_zero(drawn, value - drawn[bound]) for bound in ("low", "high"))


def _constant_rows(drawn: dict, value: np.ndarray) -> bool:
    return bool(value.std(-1).min() < 0.2)


FUNCTIONS = [
    smooth("relu", "F.relu", "jax.nn.relu", unfit=_at_zero),
    smooth("abs", "xp.abs", unfit=_at_zero),
    smooth("leaky_relu", "F.leaky_relu", "jax.nn.leaky_relu", unfit=_at_zero),
    smooth("elu", "F.elu", "jax.nn.elu"),
    smooth("tanh", "xp.tanh"),
    smooth("sigmoid", "torch.sigmoid", "jax.nn.sigmoid"),
    smooth("gelu", "F.gelu", "(lambda x: jax.nn.gelu(x, approximate=False))"),
    smooth("softplus", "F.softplus", "jax.nn.softplus"),
    smooth("silu", "F.silu", "jax.nn.silu"),
    smooth("erf", "torch.erf", "jax.scipy.special.erf"),
    smooth("exp", "xp.exp"),
    smooth("sin", "xp.sin"),
    smooth("cos", "xp.cos"),
    smooth("square", "xp.square"),
    both("power", drawing.nothing, "{0} ** 2", "{0} ** 3"),
    both("root", drawing.nothing, "xp.sqrt(1 + {0} ** 2)"),
    both("reciprocal", drawing.nothing, "1 / (1 + xp.exp(-{0}))"),
    both("log", drawing.nothing, "xp.log(1 + xp.exp({0}))"),
    each(
        "log_ndtr",
        drawing.nothing,
        "torch.special.log_ndtr({0})",
        "jax.scipy.special.log_ndtr({0})",
    ),
    both(
        "complementary_log_log",
        drawing.nothing,
        "1 - xp.exp(-xp.exp({0}))",
        "xp.log(1 - xp.exp(-xp.exp({0})))",
        "-xp.expm1(-xp.exp({0}))",
    ),
    both("logaddexp", drawing.constant, "xp.logaddexp({0}, {c})"),
    each(
        "positive_power",
        drawing.constant,
        ("torch.sigmoid({0}) ** {c}", "torch.exp({0}) ** {c}"),
        ("jax.nn.sigmoid({0}) ** {c}", "jnp.exp({0}) ** {c}"),
    ),
    both("clamp", drawing.bounds, "xp.clip({0}, {low}, {high})", unfit=_at_bounds),
    both(
        "where_above",
        drawing.nothing,
        "xp.where({0} > 0, {0}, 0.1 * {0})",
        "({0} > 0) * {0}",
        "xp.where({0} < 0, 0 * {0}, {0})",
        "{0} * (({0} > 0) * 1.0)",
        unfit=_at_zero,
    ),
    both(
        "chain",
        drawing.nothing,
        "xp.tanh(xp.exp(-xp.square({0})))",
        "xp.sin(xp.tanh({0}) + 0.5 * {0})",
        "xp.exp(-({0} ** 2)) * xp.cos({0})",
        "1 / (1 + xp.exp(-xp.sin(2 * {0} - 0.3)))",
        "xp.log(1 + xp.exp(xp.cos({0}))) - {0}",
    ),
]
ARITHMETIC = [
    both("negate", drawing.nothing, "-{0}"),
    both("add_number", drawing.number, "{0} + {number}", "{number} - {0}"),
    both("multiply_number", drawing.number, "{number} * {0}", "{0} / {number}"),
    both("add_constant", drawing.constant, "{0} + {c}", "{c} - {0}", "{0} - {c}"),
    both("multiply_constant", drawing.constant, "{0} * {c}", "{c} * {0}"),
    both("divide_constant", drawing.constant, "{0} / {c}"),
    both("add", drawing.together, "{0} + {1}"),
    both("subtract", drawing.together, "{0} - {1}"),
    both("multiply", drawing.together, "{0} * {1}"),
    both(
        "positive_sum",
        drawing.together,
        "xp.log(xp.exp({0}) + xp.exp({1}))",
        "xp.logaddexp({0}, {1})",
        "xp.exp({0}) / (xp.exp({0}) + xp.exp({1}))",
        "xp.sqrt(xp.exp({0}) + xp.exp({1}))",
        "1 / (xp.exp({0}) + 2 * xp.exp({1}))",
        hard=True,
    ),
    both("where", drawing.mask, "xp.where({c}, {0}, {1})"),
    both("where_number", drawing.mask, "xp.where({c}, {0}, {number})"),
]
MAPS = [
    each(
        "linear",
        drawing.map_after,
        ("F.linear({0}, {c})", "{0} @ {c}.T"),
        "{0} @ {c}.T",
        mixes=True,
    ),
    both("matrix_before", drawing.map_before, "{c} @ {0}", "xp.matmul({c}, {0})", mixes=True),
    each(
        "random_linear",
        drawing.weights,
        ("F.linear({0}, {1})", "{0} @ {1}.T"),
        "{0} @ {1}.T",
        partner=drawing.map_after,
        mixes=True,
    ),
    both("matmul", drawing.product, "{0} @ {1}", partner=drawing.columns, mixes=True),
    both("einsum", patterns.pattern, "xp.einsum({pattern!r}, {0})", mixes=True),
    both(
        "einsum_constant",
        patterns.pattern_with_constant,
        "xp.einsum({pattern!r}, {0}, {c})",
        mixes=True,
    ),
    both(
        "random_einsum",
        patterns.pattern_of_two,
        "xp.einsum({pattern!r}, {0}, {1})",
        partner=patterns.pattern_with_constant,
        mixes=True,
    ),
    both("outer", drawing.vectors, "xp.outer({0}, {1})", partner=drawing.other_vector),
    both(
        "tied_rows",
        drawing.two_batches,
        "{c} @ {0}.T + {d} @ {0}.T",
        "({c} @ {0}.T) * ({d} @ {0}.T)",
        "xp.tanh({c} @ {0}.T) - xp.sin({d} @ {0}.T)",
        "({c} @ {0}.T) + xp.roll({c} @ {0}.T, 1, 0)",
        mixes=True,
        hard=True,
    ),
    both(
        "tied_layers",
        drawing.weights,
        "xp.tanh({0} @ {1}.T) @ {1}",
        "{0} + ({0} @ {1}.T) @ {1}",
        partner=drawing.map_after,
        mixes=True,
        hard=True,
    ),
    both(
        "scores",
        drawing.matrix_only,
        "{0} @ {0}.mT",
        "{0} * ({0} @ {0}.mT @ {0})",
        "xp.einsum('id,jd->ij', {0}, {0})",
        mixes=True,
        hard=True,
    ),
]


def reduction(name: str, **options) -> Operation:
    """A reduction over one axis, and maybe over all."""
    return each(
        name,
        drawing.axis_and_keep,
        (
            f"torch.{name}({{0}}, dim={{axis}}, keepdim={{keep}})",
            f"{{0}}.{name}({{axis}}, {{keep}})",
        ),
        f"jnp.{name}({{0}}, axis={{axis}}, keepdims={{keep}})",
        mixes=True,
    )


def normaliser(name: str) -> Operation:
    """A function over one axis that keeps it."""
    return each(
        name,
        drawing.axis,
        (f"torch.{name}({{0}}, dim={{axis}})", f"F.{name}({{0}}, {{axis}})"),
        f"jax.nn.{name}({{0}}, axis={{axis}})",
        mixes=True,
    )


_CENTRED = "({0} - jnp.mean({0}, -1, keepdims=True))"
REDUCTIONS = [
    reduction("sum"),
    reduction("mean"),
    reduction("prod"),
    both("sum_of_all", drawing.nothing, "xp.sum({0})", mixes=True),
    both("mean_of_all", drawing.nothing, "{0}.mean()", mixes=True),
    each("cumsum", drawing.axis, "{0}.cumsum({axis})", "jnp.cumsum({0}, {axis})", mixes=True),
    each(
        "logsumexp",
        drawing.axis_and_keep,
        "torch.logsumexp({0}, dim={axis}, keepdim={keep})",
        "jax.nn.logsumexp({0}, axis={axis}, keepdims={keep})",
        mixes=True,
    ),
    normaliser("softmax"),
    normaliser("log_softmax"),
    each(
        "layer_norm",
        drawing.trailing,
        "F.layer_norm({0}, ({size},))",
        _CENTRED + " / jnp.sqrt(jnp.var({0}, -1, keepdims=True) + 1e-5)",
        unfit=_constant_rows,
        mixes=True,
    ),
    each(
        "rms_norm",
        drawing.trailing,
        "F.rms_norm({0}, ({size},), eps=1e-5)",
        "{0} * jax.lax.rsqrt(jnp.mean({0} ** 2, -1, keepdims=True) + 1e-5)",
        unfit=lambda drawn, value: _constant_rows(drawn, np.abs(value)),
        mixes=True,
    ),
]
SHAPES = [
    both("transpose", drawing.matrix_only, "{0}.T", "{0}.mT"),
    both("swapaxes", drawing.two_axes, "xp.swapaxes({0}, {first}, {second})"),
    each("permute", drawing.permutation, "{0}.permute({axes})", "jnp.transpose({0}, {axes})"),
    both("reshape", drawing.new_shape, "{0}.reshape({shape})", "xp.reshape({0}, {shape})"),
    each("flatten", drawing.nothing, "{0}.flatten()", "{0}.ravel()"),
    each("squeeze", drawing.unit_axis, "{0}.squeeze({axis})", "jnp.squeeze({0}, {axis})"),
    each(
        "unsqueeze", drawing.place_of_axis, "{0}.unsqueeze({axis})", "jnp.expand_dims({0}, {axis})"
    ),
    each("expand", drawing.expansion, "{0}.expand({shape})", "jnp.broadcast_to({0}, {shape})"),
    each("flip", drawing.axis, "{0}.flip({axis})", "jnp.flip({0}, {axis})"),
    both("roll", drawing.roll, "xp.roll({0}, {by}, {axis})"),
    both("whole_roll", drawing.whole_roll, "xp.roll({0}, {by})"),
    both("index", drawing.index, "{0}[{index}]"),
    both("index_array", drawing.index_array, "{0}[{before}{c}]"),
    each(
        "gather",
        drawing.gathering,
        ("torch.gather({0}, {axis}, {c})", "torch.take_along_dim({0}, {c}, {axis})"),
        "jnp.take_along_axis({0}, {c}, {axis})",
    ),
    each(
        "take",
        drawing.along,
        ("{0}.select({axis}, {at})", "{0}.unbind({axis})[{at}]"),
        "jnp.take({0}, {at}, axis={axis})",
    ),
    each(
        "cat",
        drawing.joinable,
        "torch.cat([{0}, {1}], {axis})",
        "jnp.concatenate([{0}, {1}], {axis})",
    ),
    both("stack", drawing.alike, "xp.stack([{0}, {1}], {axis})"),
    each(
        "split",
        drawing.pieces,
        ("{0}.chunk(2, {axis})[{piece}]", "torch.tensor_split({0}, 2, {axis})[{piece}]"),
        "jnp.split({0}, 2, axis={axis})[{piece}]",
    ),
]
DROPOUT = both("dropout", drawing.rate, "dropped({0}, {rate})", hard=True)
OPERATIONS = {
    operation.name: operation
    for operation in FUNCTIONS + ARITHMETIC + MAPS + REDUCTIONS + SHAPES + WINDOWS + GATES
}
