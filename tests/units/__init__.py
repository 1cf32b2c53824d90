"""Tests of stochastic units."""
