"""Docstring templates of ``diagnose``, for both frameworks."""

from __future__ import annotations
