"""Chapters in closed form: one file each, with a ``Config`` and ``run`` as an experiment has, and nothing to store."""
