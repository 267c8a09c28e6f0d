from scorefield.samplers.langevin import *  # noqa: F403
from scorefield.samplers.langevin import Constraint, State, annealed_langevin, langevin, last, unconstrained, unstable
