"""rlclip: trust regions for RL with verifiable rewards, in JAX and Flax.

Subpackages load on first use, so that `import rlclip` costs nothing and the
reward workers never import jax.
"""
import importlib

__version__ = '0.1.0'

_LAZY = (
    'advantages', 'algorithms', 'analysis', 'checkpoint', 'config', 'data',
    'divergences', 'evaluate', 'learner', 'losses', 'metrics', 'models',
    'oracle', 'partitioning', 'registry', 'rewards', 'sampler', 'train',
    'trust_region', 'types')


def __getattr__(name):
  if name in _LAZY:
    return importlib.import_module(f'rlclip.{name}')
  raise AttributeError(f'module rlclip has no attribute {name!r}')


def __dir__():
  return sorted([*globals(), *_LAZY])
