# %% data
import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
rows = np.random.default_rng(0).permutation(len(digits.target))
x = (digits.data[rows] / 16).astype(np.float32)
y = digits.target[rows]
x_train, y_train, x_test, y_test = x[:1400], y[:1400], x[1400:], y[1400:]
print(x_train.shape, x_test.shape)

# %% model
import jax
import numpyro
import numpyro.distributions as dist

relu = jax.nn.relu


def weights(name, *shape):
    return numpyro.sample(
        name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
    )


def classifier(x, y=None):
    hidden = relu(x @ weights("w1", 64, 30) + weights("b1", 30))
    logits = hidden @ weights("w2", 30, 10) + weights("b2", 10)
    with numpyro.plate("images", len(x)):
        numpyro.sample("digit", dist.Categorical(logits=logits), obs=y)


# %% fit
from numpyro_moments import DeterministicELBO, DVIGuide, fit

result = fit(
    classifier,
    DVIGuide(),
    x_train,
    y_train,
    objective=DeterministicELBO(covariance="diagonal"),
    steps=1500,
    batch_size=200,
    learning_rate=0.02,
)
print(f"negative ELBO per image: {result.loss / len(y_train):.3f}")

# %% predict
from numpyro_moments import predict

prediction = predict(classifier, result, x_test)["digit"]
probabilities = np.asarray(prediction.probs)
print(f"accuracy: {np.mean(probabilities.argmax(1) == y_test):.1%}")
log_score = np.asarray(prediction.log_prob(y_test)).mean()
print(f"log score: {float(log_score):.3f}")

# %% calibration
from numpyro_moments import calibration

checked = calibration(prediction, y_test)
checked

# %% the least certain images
import matplotlib.pyplot as plt

entropy = -(probabilities * np.log(probabilities)).sum(1)
figure, axes = plt.subplots(1, 6, figsize=(8, 1.8))
for axis, row in zip(axes, np.argsort(-entropy)[:6], strict=True):
    axis.imshow(x_test[row].reshape(8, 8), cmap="gray_r")
    first, second = np.argsort(-probabilities[row])[:2]
    axis.set_title(f"{first} or {second}")
    axis.set_xlabel(f"truth {y_test[row]}")
    axis.set_xticks([])
    axis.set_yticks([])

# %% noise
noise = np.random.default_rng(1).uniform(size=(500, 64)).astype(np.float32)
unknown = np.asarray(predict(classifier, result, noise)["digit"].probs)
print(
    f"largest probability, test images: {probabilities.max(1).mean():.2f}"
)
print(f"largest probability, pure noise: {unknown.max(1).mean():.2f}")

# %% mean
plain = predict(classifier, result, noise, propagation="mean")["digit"]
largest = np.asarray(plain.probs).max(1).mean()
print(f"largest probability by the mean weights, noise: {largest:.2f}")

# %% draws
drawn = predict(
    classifier,
    result,
    x_test,
    propagation="sampled",
    num_particles=200,
    rng_key=jax.random.key(0),
)["digit"]
difference = np.abs(np.asarray(drawn.probs) - probabilities).max(1)
print(
    "largest difference of a probability from 200 draws: "
    f"{difference.mean():.3f} on average"
)
