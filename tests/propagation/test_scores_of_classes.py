"""Log predictive densities of classes, in whatever arrays they come."""

import numpy as np

X = np.linspace(-1, 1, 18, dtype=np.float32).reshape(9, 2)
Y = np.arange(9) % 3
SPELLINGS = {
    "integers": Y,
    "bytes": Y.astype(np.uint8),
    "floating numbers": Y.astype(np.float32),
    "list": Y.tolist(),
}


def test_scores_of_classes(host):
    def model(x, y=None):
        prior = host.dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2)
        weight = host.language.sample("weight", prior)
        with host.language.plate("data", len(x)):
            host.language.sample("y", host.dist.Categorical(logits=x @ weight), obs=y)

    fit = host.fit(model, host.array(X), host.array(Y), steps=2)
    prediction = host.package.predict(model, fit, host.array(X))["y"]
    expected = np.log(np.asarray(prediction.probs)[np.arange(9), Y])
    for classes in SPELLINGS.values():
        found = np.asarray(prediction.log_prob(classes))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
