"""Covariances of a few values, by pulling them back through the steps that computed them.

The values are taken as linear in the latent sites and in what every nonlinear step adds,
with the derivatives of the propagated means at held variances. By Stein's lemma these are
the expected derivatives of the functions, so that
    Cov[y] = Σ over sites J V Jᵀ + Σ over steps J R Jᵀ
with the covariance V of a site and what a step adds beyond its derivative, R. A weight
that is used at several positions, rows or layers gathers its derivative before it is
squared. Hidden variances, which set the expected derivatives, are those of the forward
sweep. Left out is what functions of different units add beyond their derivatives, unless
the units have few inputs.
"""
