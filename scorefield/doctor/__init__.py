"""Advice before a training, from the images, and a check-up of trained models."""
