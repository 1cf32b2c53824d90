"""Compare an approximation with MCMC chains: numbers, text and figures."""
