"""Wrong convolutions, pools and paddings."""

from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.concatenation import pad
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian, Spread, Ties
from tests.cases.windows import convolve, padded, padded_ends, pooled
from tests.checks.general import check_batch_invariance, check_gradients, check_oracle
from tests.mutants import detached, mixed_batch, wrong_rule


def with_variance(value, variance, ties=None):
    """A value with other variances, and what it knows of its positions."""
    return Gaussian(
        value.mean,
        Spread(variance),
        value.step,
        axis=value.axis,
        support=value.support,
        ties=value.ties if ties is None else ties,
        propagation=value.propagation,
    )


def positions_apart(value):
    """Positions that are taken as independent."""
    return with_variance(value, value.variance, Ties.NONE)


def changed(change):
    def wrong(*operands):
        value = convolve(*operands)
        return with_variance(value, change(value.variance))

    return wrong


def without_weight_noise(x, w):
    """Drops S v, the product of the two variances."""
    return convolve(x, with_variance(w, w.variance * x.mean.mean() ** 2))


WINDOW_MUTANTS = [
    wrong_rule("certain weight", check_oracle, "convolution", lambda x, w: convolve(x, w.mean)),
    wrong_rule("weight's variance scaled", check_oracle, "convolution", without_weight_noise),
    wrong_rule(
        "channels taken as independent",
        check_oracle,
        "convolution_certain_weight",
        changed(lambda variance: variance),
    ),
    wrong_rule(
        "stride forgotten",
        check_oracle,
        "convolution_strided_dilated",
        lambda x, w: convolve(x, w, stride=1, dilation=2),
    ),
    wrong_rule(
        "batch statistics",
        check_batch_invariance,
        "convolution_certain_input",
        changed(mixed_batch),
    ),
    wrong_rule(
        "gradient of the variance lost",
        check_gradients,
        "convolution_certain_input",
        changed(detached),
    ),
    wrong_rule(
        "shared weights taken as independent",
        check_oracle,
        "pool_of_shared_weights",
        lambda x, w, b: pooled(add(positions_apart(convolve(x, w)), reshape(b, (1, 2, 1))), 2),
    ),
    wrong_rule(
        "shared bias taken as independent",
        check_oracle,
        "pool_of_shared_weights",
        lambda x, w, b: pooled(positions_apart(add(convolve(x, w), reshape(b, (1, 2, 1)))), 2),
    ),
    wrong_rule(
        "shared inputs taken as independent",
        check_oracle,
        "pool_of_shared_inputs",
        lambda x, w: scale_shift(pooled(positions_apart(convolve(x, w)), 2), 0.5),
    ),
    wrong_rule(
        "overlap of windows forgotten",
        check_oracle,
        "pool_of_overlapping_pools",
        lambda x: pooled(positions_apart(pooled(x, 2)), 2, 2),
    ),
    wrong_rule(
        "positions taken as independent",
        check_oracle,
        "sum_of_positions",
        lambda x, w: reduce_sum(positions_apart(convolve(x, w)), [2]),
    ),
    wrong_rule(
        "features taken as independent",
        check_oracle,
        "pool_of_features",
        lambda x: pooled(with_variance(x, x.variance), 2, 1, rank=2),
    ),
    wrong_rule(
        "another window",
        check_oracle,
        "pad_and_pool",
        lambda x, w: pooled(padded_ends(convolve(x, w)), 3, 1),
    ),
    wrong_rule(
        "padded with zeros",
        check_oracle,
        "pad",
        lambda x: pad(x, padded, [(0, 0, 0), (0, 0, 0), (1, 2, 1)]),
    ),
    wrong_rule(
        "padded at the wrong end",
        check_oracle,
        "pad",
        lambda x: pad(x, padded, [(0, 0, 0), (0, 0, 0), (2, 1, 1)], 0.5),
    ),
]
