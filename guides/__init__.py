"""Guides: what q is. ``families`` is framework-free, ``pyro`` and ``numpyro`` fit it to a host."""
