"""Models: a network with what is needed to use it, its file, recipes, pretrained models, import and export."""
