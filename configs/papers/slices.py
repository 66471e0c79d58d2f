"""The slice on which each published experiment is shown to compile and fit.

Slices and what is set for them (meshes, micro-batches, slots) are ours. The
rules of one model and context differ by elementwise work alone, except where
one scores a reference: those have rows of their own.
"""
from typing import Any, Mapping, NamedTuple

from configs.papers import atr_grpo, gapo, rpg


class Row(NamedTuple):
  """One line of docs/results/papers.md."""
  name: str  # of the config, as after --config=
  config: Any
  topology: str


def _row(module: Any, variant: str, topology: str, **settings: Any) -> Row:
  config = module.get_config(variant)
  config.update_from_flattened_dict(
      {key.replace('__', '.'): value for key, value in settings.items()})
  file = module.__name__.replace('.', '/')
  return Row(f'{file}.py:{variant}', config, topology)


# The smallest first: what can be compiled in little time is done first.
ROWS: tuple[Row, ...] = (
    _row(gapo, 'qwen2.5-math-1.5b,sequence', 'v6e:4x4'),
    _row(gapo, 'qwen2.5-math-1.5b,token', 'v6e:4x4'),
    _row(atr_grpo, 'qwen3-1.7b,atr_grpo', 'v6e:4x4'),
    _row(gapo, 'llama-3.2-3b,sequence', 'v6e:4x4'),
    _row(gapo, 'r1-distill-1.5b,sequence', 'v6e:4x8'),
    _row(rpg, 'qwen3-4b,rpg_ufkl,2k', 'v6e:4x8'),
    _row(rpg, 'qwen3-4b,rpg_ufkl,4k', 'v6e:4x8'),
    _row(rpg, 'qwen3-4b,grpo,4k', 'v6e:4x8'),
    _row(rpg, 'qwen2.5-7b,rpg_urkl,2k', 'v6e:4x8'),
    _row(atr_grpo, 'qwen3-8b,atr_grpo', 'v6e:4x8'),
    _row(rpg, 'qwen3-4b,rpg_reinforce_urkl,8k', 'v5p:4x4x2'),
)
