"""Exact Gaussian inference, its recursions, and sampling."""
