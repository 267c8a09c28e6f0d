"""Training runs in folders: resumed exactly, stopped cleanly, logged, and never overwritten.

RUN/recipe.json                              the settings that are in force
RUN/changes.json                             those that a resumed run changed, with the step of each change
RUN/log.csv, held_out.csv                    losses, in total and by noise level: loss@SIGMA
RUN/checkpoints/model-STEP.safetensors       weights, and all that is needed to use them
RUN/checkpoints/optimizer-STEP.safetensors   the rest of what resuming needs, for the last two checkpoints
RUN/samples/STEP.png                         samples at each checkpoint
"""

from scorefield.training.folder import saved_recipe
from scorefield.training.run import train

__all__ = ["saved_recipe", "train"]
