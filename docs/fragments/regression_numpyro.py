# %% data
import numpy as np
import numpyro
from sklearn.datasets import load_diabetes

numpyro.enable_x64()
data = load_diabetes(scaled=False)
names = list(data.feature_names)
x = (data.data - data.data.mean(0)) / data.data.std(0)
y = (data.target - data.target.mean()) / data.target.std()
rows = np.random.default_rng(0).permutation(len(y))
train, test = rows[:342], rows[342:]
print(x.shape, names)

# %% model
import numpyro.distributions as dist


def regression(x, y=None):
    weights = numpyro.sample(
        "weights", dist.Normal(0.0, 1.0).expand([10]).to_event(1)
    )
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("obs", dist.Normal(x @ weights + bias, scale), obs=y)


# %% fit
from numpyro_moments import DVIGuide, fit

result = fit(
    regression,
    DVIGuide(),
    x[train],
    y[train],
    method="newton",
    float64=True,
)
print(result.reason)
print(f"negative ELBO {result.loss:.3f} after {result.steps} steps")

# %% again
again = fit(
    regression,
    DVIGuide(),
    x[train],
    y[train],
    method="newton",
    float64=True,
)
print(again.loss == result.loss)

# %% predict
from numpyro_moments import predict

prediction = predict(regression, result, x[test])["obs"]
lower, upper = (np.asarray(end) for end in prediction.interval(0.9))
share = np.asarray(prediction.epistemic_variance) / np.asarray(
    prediction.variance
)
inside = np.mean((lower < y[test]) & (y[test] < upper))
print(f"{inside:.0%} of the held-out rows are inside")
print(f"the weights cause {share.mean():.1%} of the predictive variance")

# %% calibration
from numpyro_moments import calibration

calibration(prediction, y[test])

# %% summary
from numpyro_moments import linear_response

response = linear_response(regression, result, x[train], y[train])
response.summary()

# %% intervals of the coefficients by mean field and by linear response
import matplotlib.pyplot as plt

mean = np.asarray(response.location("weights"))
corrected = np.asarray(response.standard_deviation("weights"))
narrow = np.asarray(result.params["weights_auto_scale"])
place = np.arange(10)
plt.figure(figsize=(7, 3))
plt.errorbar(place - 0.1, mean, 1.64 * narrow, fmt="o", label="mean field")
plt.errorbar(
    place + 0.1, mean, 1.64 * corrected, fmt="s", label="linear response"
)
plt.xticks(place, names)
plt.axhline(0, color="grey", lw=0.5)
plt.legend()
plt.ylabel("90 % interval")

# %% correlation
s1, s2 = names.index("s1"), names.index("s2")
observed = np.corrcoef(x[train].T)[s1, s2]
posterior = float(response.correlation("weights")[s1, s2])
print(
    f"the covariates correlate by {observed:.2f}, "
    f"their weights by {posterior:.2f}"
)

# %% moments
total = response.moments(
    lambda sites: sites["weights"][s1] + sites["weights"][s2]
)
deviation = float(total.variance) ** 0.5
print(f"s1 + s2: {float(total.mean):.3f} ± {deviation:.3f}")
print(f"s1 alone: {mean[s1]:.3f} ± {corrected[s1]:.3f}")

# %% predict with the response
better = response.predict(x[test])["obs"]
before = np.asarray(prediction.epistemic_variance)
ratio = np.sqrt(np.asarray(better.epistemic_variance) / before)
print(
    "epistemic standard deviations change by factors "
    f"of {ratio.min():.2f} to {ratio.max():.2f}"
)

# %% influence
influence = np.asarray(response.influence("weights"))[names.index("bmi")]
most = np.argsort(-np.abs(influence))[:3]
print(
    "patients with the largest influence on the weight of bmi:", train[most]
)
print(
    "change of the weight if each were counted twice:",
    influence[most].round(4),
)

# %% diagnose
from numpyro_moments import diagnose

diagnosis = diagnose(
    regression, result, x[train], y[train], held_out=(x[test], y[test])
)

# %% nuts
from numpyro_moments import compare_with_nuts

compare_with_nuts(
    regression, result, x[train], y[train], num_warmup=500, num_samples=1000
)

# %% draws

import jax
from numpyro.infer import Predictive

draws = response.sample(200, jax.random.key(0))
Predictive(regression, draws)(jax.random.key(1), x[test])["obs"].shape
