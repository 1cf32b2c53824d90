"""Recurrent cells, and layers of them unrolled over a sequence."""
