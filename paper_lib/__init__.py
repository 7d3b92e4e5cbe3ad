"""Models, samplers, methods and metrics behind the book on sequential Bayesian inference for continual learning.

Threads of OpenMP that wait are told to sleep, unless the user has said otherwise: spinning ones make small steps 2 to
13 times slower where another process is busy. OpenMP reads this once, when torch is loaded, so it has no effect where
torch was imported before the package.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
