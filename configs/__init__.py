"""Experiment configs: default.py names every key, the others differ from it."""
