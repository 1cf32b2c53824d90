"""Covariances of two functions of correlated Gaussians."""
