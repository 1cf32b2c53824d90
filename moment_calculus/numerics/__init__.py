"""Arrays of any framework, special functions, derivatives, quadrature, the normal distribution."""
