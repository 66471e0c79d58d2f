"""The slice on which each published experiment is shown to compile and fit.

Slices and what is set for them (meshes, micro-batches, slots) are ours. The
rules of one model and context differ by elementwise work alone, except where
one scores a reference: those have rows of their own.
"""
from typing import Any, NamedTuple

from configs.papers import atr_grpo, gapo, rpg


class Row(NamedTuple):
  """One line of docs/results/papers.md."""
  name: str  # of the config, as after --config=
  config: Any
  topology: str


def _row(module: Any, variant: str, topology: str, *, fsdp: int, tensor: int,
         micros: int, slots: int = 0) -> Row:
  """A variant on a slice; slots 0 leaves them as they are."""
  config = module.get_config(variant)
  config.mesh.fsdp, config.mesh.tensor = fsdp, tensor
  config.learner.num_micro_batches = micros
  config.rollout.num_slots = slots or config.rollout.num_slots
  file = module.__name__.replace('.', '/')
  return Row(f'{file}.py:{variant}', config, topology)


# The smallest first: what can be compiled in little time is done first.
# `tensor` as far as key-value heads go: a host's chips then share the weights
# that decoding reads, and do not send them to one another for every token.
ROWS: tuple[Row, ...] = (
    _row(gapo, 'qwen2.5-math-1.5b,sequence', 'v6e:4x4',
         fsdp=8, tensor=2, micros=8),
    _row(atr_grpo, 'qwen3-1.7b,atr_grpo', 'v6e:4x4',
         fsdp=4, tensor=4, micros=8, slots=256),
    _row(rpg, 'qwen3-4b,rpg_ufkl,2k', 'v6e:4x8', fsdp=8, tensor=4, micros=4),
    _row(atr_grpo, 'qwen3-8b,atr_grpo', 'v6e:4x8',
         fsdp=8, tensor=4, micros=4, slots=256),
    _row(gapo, 'llama-3.2-3b,sequence', 'v6e:4x8',
         fsdp=8, tensor=4, micros=8),
    _row(gapo, 'r1-distill-1.5b,sequence', 'v6e:4x8',
         fsdp=16, tensor=2, micros=4),
    _row(rpg, 'qwen2.5-7b,rpg_urkl,2k', 'v6e:4x8',
         fsdp=8, tensor=4, micros=4),
    _row(gapo, 'qwen2.5-math-1.5b,token', 'v6e:4x4',
         fsdp=8, tensor=2, micros=8),
    _row(rpg, 'qwen3-4b,rpg_ufkl,4k', 'v5p:4x4x2',
         fsdp=8, tensor=4, micros=2),
    _row(rpg, 'qwen3-4b,grpo,4k', 'v5p:4x4x2', fsdp=8, tensor=4, micros=2),
    _row(rpg, 'qwen3-4b,rpg_reinforce_urkl,8k', 'v5p:4x4x2',
         fsdp=8, tensor=4, micros=4),
)
