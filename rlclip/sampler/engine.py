"""The in-process sampler: fixed slots, refilled as completions finish."""
import collections
import functools
from typing import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import transformer
from rlclip.sampler import slots as slots_lib
from rlclip.types import Completion, Params, Request

_FINISH = {slots_lib.STOP: 'stop', slots_lib.LENGTH: 'length',
           slots_lib.ERROR: 'error'}
_MAX_STOP_IDS = 8
_SMALLEST_BUCKET = 16


class Engine:
  """Draws completions with the model itself; a Sampler (see types)."""

  def __init__(self, config: config_lib.ModelConfig, *, seed: int,
               num_slots: int, max_prompt: int, max_tokens: int,
               steps_per_round: int = 16, dtype=jnp.float32,
               constrain=lambda array, axes: array):
    """Allocates nothing yet: the first generate() does.

    Args:
      config: the model's architecture.
      seed: with a request's id, prompt and spec it determines the completion.
      num_slots: completions decoded at once.
      max_prompt: longest prompt in tokens.
      max_tokens: longest completion in tokens.
      steps_per_round: tokens a slot may draw before the host looks.
      dtype: of weights, activations and cache.
      constrain: lays an activation on the mesh by logical axis names.
    """
    self._model = transformer.make(
        config, dtype=dtype, scan_layers=False, constrain=constrain)
    self._key = jax.random.key(seed)
    self._num_slots = num_slots
    self._max_prompt = max_prompt
    self._max_tokens = max_tokens
    self._params, self._version = None, -1
    self._slots = None

    def unstacked_copy(params):
      # A copy even where nothing changes: the learner donates its arrays.
      params = transformer.unstack(params, config.num_layers)
      return jax.tree.map(lambda x: jnp.copy(x.astype(dtype)), params)

    def empty():
      # One round beyond the last token, which is the most a flush may write.
      return slots_lib.empty(
          self._model, num_slots, max_prompt + max_tokens + steps_per_round,
          max_tokens, _MAX_STOP_IDS, dtype)

    self._copy = jax.jit(unstacked_copy)
    self._empty = jax.jit(empty)
    self._admit = jax.jit(
        functools.partial(slots_lib.admit, self._model),
        static_argnames=('filtered',), donate_argnums=2)
    self._decode = jax.jit(
        functools.partial(
            slots_lib.decode_round, self._model, num_steps=steps_per_round),
        static_argnames=('filtered',), donate_argnums=2)

  def load_weights(self, params: Params, version: int) -> None:
    """Copies the learner's parameters (layers stacked) for sampling."""
    self._params, self._version = self._copy(params), version

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Draws one completion a request; results in the order of the requests.

    Raises:
      ValueError: before any work, naming the first request that cannot be
        served.
      RuntimeError: if load_weights was never called.
    """
    if self._params is None:
      raise RuntimeError('generate() before load_weights(): no weights yet.')
    for request in requests:
      self._check(request)
    filtered = any(r.spec.top_p < 1 or r.spec.top_k > 0 for r in requests)
    waiting = collections.deque(range(len(requests)))
    occupants = [None] * self._num_slots  # index of the request in each slot
    results: list[Completion | None] = [None] * len(requests)
    slots = self._slots if self._slots is not None else self._empty()
    self._slots = None  # donated from here on
    while waiting or any(o is not None for o in occupants):
      if waiting and None in occupants:
        slots = self._fill(slots, requests, waiting, occupants, filtered)
      slots = self._decode(self._params, self._key, slots, filtered=filtered)
      self._harvest(slots, occupants, results)
    self._slots = slots
    return results

  def _fill(self, slots, requests, waiting, occupants, filtered):
    """Admits as many waiting requests as there are free slots."""
    free = [i for i, o in enumerate(occupants) if o is None]
    indices = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
    prompts, sources = [], []
    for index in indices:
      prompt = requests[index].prompt
      if not prompts or not np.array_equal(prompts[-1], prompt):
        prompts.append(prompt)
      sources.append(len(prompts) - 1)
    taken = free[:len(indices)]
    for slot, index in zip(taken, indices, strict=True):
      occupants[slot] = index
    # Sizes are rounded up to powers of two, which bounds the compilations.
    length = _bucket(max(map(len, prompts)), _SMALLEST_BUCKET,
                     self._max_prompt)
    tokens = np.zeros((_bucket(len(prompts), 1, self._num_slots), length),
                      np.int32)
    lengths = np.ones(len(tokens), np.int32)
    for i, prompt in enumerate(prompts):
      tokens[i, :len(prompt)] = prompt
      lengths[i] = len(prompt)
    pad = self._num_slots - len(indices)
    rows = np.array(taken + [self._num_slots] * pad, np.int32)
    sources = np.array(sources + [0] * pad, np.int32)
    chosen = [requests[i] for i in indices] + [requests[indices[0]]] * pad
    return self._admit(
        self._params, self._key, slots, tokens, lengths, rows, sources,
        _request_arrays(chosen), filtered=filtered)

  def _harvest(self, slots, occupants, results):
    """Takes finished completions out of their slots."""
    status, num_tokens, tokens, logps = jax.device_get(
        (slots.status, slots.num_tokens, slots.tokens, slots.logps))
    for slot, index in enumerate(occupants):
      if index is None or status[slot] == slots_lib.ACTIVE:
        continue
      count = num_tokens[slot]
      results[index] = Completion(
          tokens[slot, :count].copy(), logps[slot, :count].copy(),
          _FINISH[int(status[slot])], self._version)
      occupants[slot] = None

  def _check(self, request: Request):
    """Refuses what the engine cannot serve, before any work."""
    spec, length = request.spec, len(request.prompt)
    vocab = self._model.config.vocab_size
    def refuse(what, remedy):
      raise ValueError(f'Request {request.id}: {what}. {remedy}')
    if not 1 <= length <= self._max_prompt:
      refuse(f'its prompt has {length} tokens, expected 1 to '
             f'{self._max_prompt}', 'Raise config.rollout.prompt_length.')
    if not 1 <= spec.max_tokens <= self._max_tokens:
      refuse(f'max_tokens is {spec.max_tokens}, expected 1 to '
             f'{self._max_tokens}', 'Raise config.rollout.completion_length.')
    if spec.temperature < 0:
      refuse(f'temperature is {spec.temperature}, expected 0 (greedy) or more',
             'Set config.rollout.temperature.')
    if not 0 < spec.top_p <= 1 or spec.top_k < 0:
      refuse(f'top_p is {spec.top_p} and top_k {spec.top_k}, expected '
             f'0 < top_p <= 1 and top_k >= 0', 'Use 1 and 0 to keep all.')
    if len(spec.stop_ids) > _MAX_STOP_IDS:
      refuse(f'{len(spec.stop_ids)} stop ids, expected at most '
             f'{_MAX_STOP_IDS}', 'Drop those the model never emits.')
    outside = [i for i in spec.stop_ids if not 0 <= i < vocab]
    if outside:
      refuse(f'stop ids {outside} are outside the vocabulary of {vocab}',
             'Check the tokenizer.')


def _request_arrays(requests: Sequence[Request]) -> slots_lib.Requests:
  stop_ids = np.full((len(requests), _MAX_STOP_IDS), -1, np.int32)
  for i, request in enumerate(requests):
    stop_ids[i, :len(request.spec.stop_ids)] = request.spec.stop_ids
  field = lambda name, dtype: np.array(
      [getattr(r.spec, name) for r in requests], dtype)
  return slots_lib.Requests(
      ids=np.array([r.id for r in requests], np.uint32),
      temperatures=field('temperature', np.float32),
      top_ps=field('top_p', np.float32), top_ks=field('top_k', np.int32),
      max_tokens=field('max_tokens', np.int32), stop_ids=stop_ids)


def _bucket(size: int, smallest: int, largest: int) -> int:
  """The next power of two, at least `smallest`, at most `largest`."""
  return min(largest, max(smallest, 1 << (size - 1).bit_length()))
