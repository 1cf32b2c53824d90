"""Families of posteriors, framework-free: parameters to moments, samples and divergences."""
