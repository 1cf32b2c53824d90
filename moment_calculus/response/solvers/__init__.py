"""Inverses of Hessians: dense, with arrow structure, or known by products only."""
