"""Chains of functions recognised by what they compute."""
