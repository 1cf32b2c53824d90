"""Compare an approximation with MCMC chains of the same model: numbers, text and figures."""
