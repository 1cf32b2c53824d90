"""Mistakes of data: what is wrong with the arrays that a model gets."""

import jax
import numpy as np

from tests.mistakes.models import (
    COUNTS,
    IN,
    LABELS,
    OUT,
    ROWS,
    Mistake,
    binary,
    by_row,
    changed,
    classes,
    column,
    counts,
    data,
    enumerated,
    fitted,
    grouped,
    of,
    positive,
    proportions,
    random_scale,
    trained,
    trials,
    vector_by_row,
    without_default,
)


def fit(x, y, model=None, **options):
    """A fit of a model, by default the regression."""

    def call(host):
        return fitted(host, model(host) if model else host.regression, x, y, **options)

    return call


def step(x, y, model=None):
    """A step of SVI."""

    def call(host):
        package, arrays = host.package, (host.array(x), host.array(y))
        model_or_default = model(host) if model else host.regression
        svi = package.SVI(model_or_default, package.DVIGuide(), package.DeterministicELBO())
        return svi.step(*arrays) if host.name == "pyro" else svi.init(jax.random.key(0), *arrays)

    return call


def predict(x):
    """Predictions of the regression."""
    return lambda host: host.package.predict(host.regression, trained(host.name), host.array(x))


def of_rows(model):
    """Predictions of other rows than those of the training."""

    def call(host):
        made = model(host)
        return host.package.predict(made, fitted(host, made, IN, OUT), host.array(IN[:7]))

    return call


def of_columns(count, rows=ROWS):
    """Predictions by a network from fewer columns than it was trained on."""

    def call(host):
        made = classes(host)
        new = host.array(IN[:rows, :count])
        return host.package.predict(made, fitted(host, made, IN, LABELS), new)

    return call


def of_no_observations(host):
    """A linear response without the observations of the training."""
    made = random_scale(host)
    return host.package.linear_response(made, fitted(host, made, IN, OUT), data(host)[0])


def of_inputs_alone(host):
    """Predictions of a model that asks for observations, without them."""
    made = without_default(host)
    return host.package.predict(made, fitted(host, made, IN, OUT), host.array(IN))


PROPORTIONS = ((np.arange(ROWS) + 0.5) / ROWS).astype(np.float32)
NAN_INPUTS = changed(IN, (4, 1), np.nan)
NAN_OUTPUTS = changed(OUT, 7, np.nan)
WITH_NEGATIVE = changed(COUNTS, 2, -1)
CLEAN = "leave such rows out, impute them, or hide them by a mask"
INPUT = r"input 'x' of the model has 1 NaN or infinite element\(s\) of 60, .* row 4, column 1"
OUTPUT = r"site 'obs' \(argument 'y'\) has 1 NaN or infinite element\(s\) of 20, .* row 7"
COUNT = r"site 'obs' \(argument 'y'\) have 1 .* Poisson does not take, the first -1.* row 2"
WHOLE = "whole numbers from 0"
PAIRS = "pair every observation with every row"
AS_MANY = "as many observations as rows"

DATA = {
    "NaN among inputs": Mistake(fit(NAN_INPUTS, OUT), INPUT, CLEAN),
    "NaN among inputs, by Adam": Mistake(
        fit(NAN_INPUTS, OUT, method="adam", steps=2), INPUT, CLEAN
    ),
    "infinity among inputs": Mistake(fit(changed(IN, (4, 1), np.inf), OUT), INPUT, CLEAN),
    "NaN among observations": Mistake(fit(IN, NAN_OUTPUTS), OUTPUT, CLEAN),
    "NaN among observations, in mini-batches": Mistake(
        fit(IN, NAN_OUTPUTS, method="adam", steps=9, batch_size=5), "NaN or infinite", CLEAN
    ),
    "NaN among held-out observations": Mistake(
        fit(IN, OUT, method="adam", steps=2, held_out=(IN, NAN_OUTPUTS)),
        "input 'y' .* row 7",
        CLEAN,
    ),
    "NaN among observations left out": Mistake(
        lambda host: host.package.loo(
            host.regression, trained(host.name), host.array(IN), host.array(NAN_OUTPUTS)
        ),
        OUTPUT,
        CLEAN,
    ),
    "NaN among observations, in SVI": Mistake(step(IN, NAN_OUTPUTS), OUTPUT, CLEAN),
    "infinity among observations": Mistake(fit(IN, changed(OUT, 7, np.inf)), OUTPUT, CLEAN),
    "NaN among new inputs": Mistake(predict(NAN_INPUTS), INPUT, CLEAN),
    "a label beyond the classes": Mistake(
        fit(IN, changed(LABELS, 3, 3), classes), "Categorical.* the first 3 in row 3", "from 0 to 2"
    ),
    "a negative label": Mistake(
        fit(IN, changed(LABELS, 3, -1), classes), "the first -1 in row 3", "count classes from 0"
    ),
    "labels of one and two": Mistake(
        fit(IN, (LABELS % 2 + 1).astype(np.float32), binary), "Bernoulli.* 2.0", "as 0 and 1"
    ),
    "text as labels": Mistake(
        lambda host: fitted(host, classes(host), IN, ["cat", "dog"] * (ROWS // 2)),
        "argument 'y' holds text, such as 'cat'",
        "count labels from 0",
    ),
    "a negative count": Mistake(fit(IN, WITH_NEGATIVE, counts), COUNT, WHOLE),
    "a negative count, in SVI": Mistake(step(IN, WITH_NEGATIVE, counts), COUNT, WHOLE),
    "counts that are not whole": Mistake(
        fit(IN, (COUNTS + 0.5).astype(np.float32), counts), "20 element.* 0.5 in row 0", WHOLE
    ),
    "more successes than trials": Mistake(
        fit(IN, changed(COUNTS, 5, 5).astype(np.float32), trials), "5.0 in row 5", "0 to 4"
    ),
    "zero where numbers are positive": Mistake(
        fit(IN, changed(np.exp(OUT), 0, 0), positive), "LogNormal.* 0.0 in row 0", "above 0"
    ),
    "a column of observations": Mistake(fit(IN, OUT[:, None]), PAIRS, r"y\[:, 0\]"),
    "a column of means": Mistake(
        fit(IN, OUT, column), r"\[20, 20\] in plates of \[20\]", r"loc\[:, 0\]"
    ),
    "fewer observations than inputs": Mistake(fit(IN, OUT[:15]), r"\[15\].* \[20\]", AS_MANY),
    "fewer inputs than observations": Mistake(fit(IN[:15], OUT), r"\[20\].* \[15\]", AS_MANY),
    "one observation for all rows": Mistake(fit(IN, OUT[:1]), "count for every row", AS_MANY),
    "numbers as probabilities": Mistake(
        fit(IN, (OUT > 0).astype(np.float32), of(lambda host, eta: host.dist.Bernoulli(eta))),
        "Bernoulli.* invalid parameter 'probs'",
        "logits=",
    ),
    "numbers as rates": Mistake(
        fit(IN, COUNTS, of(lambda host, eta: host.dist.Poisson(eta))),
        "Poisson got an invalid parameter 'rate'",
        "exp or softplus",
    ),
    "forgotten counts": Mistake(
        lambda host: fitted(host, counts(host), IN), "'obs' is discrete", "pass y"
    ),
    "proportions of zero and one": Mistake(
        fit(IN, changed(PROPORTIONS, [3, 9], [0, 1]), proportions),
        r"'obs' \(argument 'y'\) have 2 .* are 0 or 1, the first in row 3.* Beta",
        r"move them inside, as by \(y \* \(n - 1\) \+ 0.5\) / n",
    ),
    "new rows of an effect by row": Mistake(
        of_rows(by_row), "'effect' has an element for every row of plate 'data'", "hidden by a mask"
    ),
    "new rows of a vector by row": Mistake(
        of_rows(vector_by_row), "'effect' has an element for every row of the data", "by a mask"
    ),
    "an enumerated site": Mistake(
        fit(IN, OUT, enumerated), "'kind' is discrete", "marginalise it in the model"
    ),
    "no new inputs": Mistake(predict(IN[:0]), r"batch is empty.*'x'.*\(0, 3\)", "at least one row"),
    "new inputs with other columns": Mistake(
        predict(IN[:, :2]), r"do not fit together.* x \[20, 2\]", "has 2 columns, .*3.* same order"
    ),
    "as many new rows as wrong columns": Mistake(
        predict(IN[:2, :2]), r"do not fit together.* x \[2, 2\]", "has 2 columns, .*3.* same order"
    ),
    "new inputs with other columns, of a matrix": Mistake(
        of_columns(2), r"do not fit together.* x \[20, 2\]", "had 3 in the training.* same order"
    ),
    "as many new rows as wrong columns, of a matrix": Mistake(
        of_columns(2, 2), r"do not fit together.* x \[2, 2\]", "had 3 in the training.* same order"
    ),
    "groups that are no whole numbers": Mistake(
        fit(COUNTS.astype(np.float32), OUT, grouped), r"as an index.*\(group \S*float32", "as int64"
    ),
    "observations that cannot be left out": Mistake(
        of_inputs_alone, "missing a required argument: 'y'", "default in the model, y=None"
    ),
    "a mass in percent": Mistake(
        lambda host: predict(IN)(host)["obs"].interval(90), "between 0 and 1, not 90", "0.9 is 90 %"
    ),
    "forgotten observations of a response": Mistake(
        lambda host: host.package.linear_response(
            host.regression, trained(host.name), data(host)[0]
        ),
        "'obs' of the model is not in the guide",
        "pass y",
    ),
    "forgotten observations of a response, with a random scale": Mistake(
        of_no_observations, "'obs'", "pass y"
    ),
    "forgotten observations of a diagnosis": Mistake(
        lambda host: host.package.diagnose(host.regression, trained(host.name), data(host)[0]),
        "'obs' is not observed",
        "pass y",
    ),
}
