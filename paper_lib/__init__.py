"""Models, samplers, methods and metrics behind the book on sequential Bayesian inference for continual learning."""

__version__ = "0.1.0"
