"""The records that travel through rlclip, and the one legend of shapes.

  P  prompts a step              S  tokens of a prompt
  G  samples a prompt            C  tokens of a completion
  N  rows, P * G; row n belongs  V  vocabulary
     to prompt n // G            L  layers

Prompts and completions are kept apart. Per-token arrays are [N, C], and index
t speaks of `completions[:, t]`; the first completion token is predicted by the
prompt's last state. Both parts are padded on the right, and masks come from
lengths, never from token ids.

Everything here is a NamedTuple or a frozen dataclass of arrays: a jax pytree
where it needs to be one, without importing jax (reward workers import this).
"""
import dataclasses
from typing import Any, Literal, Mapping, NamedTuple, Protocol, Sequence

import numpy as np

Array = Any  # numpy or jax array
Params = Any  # a pytree of arrays


@dataclasses.dataclass(frozen=True)
class Prompt:
  """One example, ready to sample from.

  Attributes:
    id: unique within its task and split.
    tokens: int32[S], chat template applied, unpadded.
    text: what `tokens` decode to.
    fields: the example's own fields (gold answer, tests, ...), for rewards.
  """
  id: str
  tokens: np.ndarray
  text: str
  fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SamplingSpec:
  """How to draw completions.

  Attributes:
    max_tokens: longest completion, stop token included.
    stop_ids: any of these ends a completion and is part of it.
    temperature: logits are divided by this; 0 is greedy.
    top_p: keep the smallest set of tokens with this mass; 1 keeps all.
    top_k: keep this many tokens; 0 keeps all.
    min_tokens: no stop id is drawn before so many tokens. Like top_p and
      top_k it changes the distribution, which log-probs are of, so it is for
      evaluation: the learner scores the plain softmax.
    stop_strings: a completion ends with the token that completes any of these
      in its text.
  """
  max_tokens: int
  stop_ids: tuple[int, ...]
  temperature: float = 1.0
  top_p: float = 1.0
  top_k: int = 0
  min_tokens: int = 0
  stop_strings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Request:
  """One completion to be sampled.

  Attributes:
    id: keys the draw: with the weights, the seed, the prompt and the spec it
      determines the completion, whatever slot or neighbors it gets.
    prompt: int32[S] token ids. Consecutive requests with equal prompts are
      prefilled once.
    spec: how to draw.
  """
  id: int
  prompt: np.ndarray
  spec: SamplingSpec


class Completion(NamedTuple):
  """One sampled answer.

  Attributes:
    tokens: int32[C]; with finish 'stop' it ends with a stop id, or with the
      token that completes a stop string.
    logps: float32[C], of the distribution sampled from (temperature included),
      in nats: the behavior log-probs.
    finish: why it ended.
    version: of the weights that sampled it.
  """
  tokens: np.ndarray
  logps: np.ndarray
  finish: Literal['stop', 'length', 'error']
  version: int


class Sampler(Protocol):
  """Draws completions; in-process engine, remote engine or scripted fake."""

  def load_weights(self, params: Params, version: int) -> None:
    """Copies or reshapes `params` (the learner donates its own)."""

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Returns one completion a request, in the order of the requests."""


class Packing(NamedTuple):
  """Where the completions of a batch lie in R rows of C slots, without padding.

  A row has completions of one group, one after another. Counts are within a
  micro-batch.
  """
  source: Array  # int32[R, C], n * C + t of the token in a slot; N * C if none
  first: Array  # int32[N], r * C + a completion's first slot; R * C if empty
  rows: Array  # int32[P, n], the rows of a group; R where none
  places: Array  # int32[R], p * n + i where rows[p, i] is r; else anything


class Batch(NamedTuple):
  """P prompts and their N = P * G scored completions, right-padded.

  The mask holds sampled tokens, the stop token among them. Rows without a
  reward have an all-False mask.
  """
  prompts: Array  # int32[P, S]
  prompt_lengths: Array  # int32[P]
  completions: Array  # int32[N, C]
  mask: Array  # bool[N, C]
  behavior_logps: Array  # float32[N, C], from the sampler
  old_logps: Array  # float32[N, C], the learner's at the batch's weights
  advantages: Array  # float32[N]
  rewards: Array  # float32[N]
  group_mean: Array  # float32[N], mean reward of the row's group
  group_size: Array  # float32[N], rows of the group with a reward, or 1
  truncated: Array  # bool[N], ended by length
  packing: Packing | None = None


@dataclasses.dataclass(frozen=True, order=True)
class Statistic:
  """The policy's divergence from another at a position, over the vocabulary.

  Attributes:
    measure: a divergence of rlclip.divergences, D(policy || other).
    toward: the other: 'anchor' (the policy at the batch's weights) or
      'reference'.
    top_k: 0 for all of the vocabulary; else the other's K likeliest tokens,
      each its own bin, and one bin for the rest.
  """
  measure: str
  toward: Literal['anchor', 'reference']
  top_k: int = 0


class TokenStats(NamedTuple):
  """What scoring computes beside the logits, chunk by chunk.

  No [N, C, V] array ever exists; a further per-token statistic that a rule
  asks for goes into `extra`.
  """
  logps: Array  # float32[N, C], at the sampling temperature
  entropy: Array  # float32[N, C], nats
  extra: Mapping[Statistic, Array] = {}  # float32[N, C] each


class Mean(NamedTuple):
  """A mean that stays a pair until it is logged.

  Sums of pairs over micro-batches, devices and hosts, divided once, do not
  depend on how the batch was cut.
  """
  total: Array
  weight: Array

  def value(self) -> Array:
    """total / weight; 0 where nothing was counted."""
    empty = self.weight == 0
    return self.total / (self.weight + empty)


class LossOutput(NamedTuple):
  loss: Mean
  metrics: Mapping[str, Mean]


class TrainState(NamedTuple):
  """What a checkpoint holds of the learner. Keys are folded from the step."""
  step: Array  # int32[], optimizer updates done
  params: Params  # the model's weights, or a base and adapters: see rlclip.lora
  opt_state: Any
  factors: Mapping[str, Array] = {}  # of the rule's dials, by role
