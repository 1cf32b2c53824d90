"""Inverses of Hessians: dense, of an arrow, or of products alone."""
