"""The in-process sampler: slots that are refilled as completions finish.

  requests -> Table.take     a slot, and a line of the prompt's prefix
           -> prefill        new prompts, chunk by chunk
           -> admit          what the slots work on
           -> decode_round   a few tokens for every slot
           -> Report         to the host: tokens, and who is finished
"""
import collections
import dataclasses
import functools
import logging
import operator
from typing import Callable, Iterator, NamedTuple, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from rlclip.models import config as config_lib
from rlclip.models import transformer
from rlclip.sampler import draw, prefixes
from rlclip.sampler import requests as requests_lib
from rlclip.sampler import slots as slots_lib
from rlclip.types import Completion, Params, Request

_log = logging.getLogger(__name__)

_FINISH = {slots_lib.STOP: 'stop', slots_lib.LENGTH: 'length',
           slots_lib.ERROR: 'error'}
# Sizes are powers of this, which bounds the compilations.
_BASE = 4
_SMALLEST_CHUNK, _SMALLEST_CACHE = 16, 64  # tokens
_CHUNK = 256  # longest chunk of a prompt, in tokens
_PROMPTS = 4  # computed at once
_SPARE = 4  # prefixes for each that full groups would need


class Piece(NamedTuple):
  """Tokens of one completion, as they become known."""
  index: int  # of its request
  tokens: np.ndarray  # int32[k], those since the last piece
  logps: np.ndarray  # float32[k]
  finish: str | None  # as in Completion, with its last tokens


@dataclasses.dataclass
class _Work:
  """A request in a slot."""
  index: int
  request: Request
  round: int  # the first that draws for it
  tokens: list[int] = dataclasses.field(default_factory=list)


class Engine:
  """Draws completions with the model itself; a Sampler (see types)."""

  def __init__(self, config: config_lib.ModelConfig, *, seed: int,
               num_slots: int, max_prompt: int, max_tokens: int,
               steps_per_round: int = 16, rounds_ahead: int | None = None,
               dtype=jnp.float32,
               constrain=lambda array, axes: array,
               decode: Callable[[Sequence[int]], str] | None = None):
    """Allocates nothing yet: the first generate() does.

    Args:
      config: the model's architecture.
      seed: with a request's id, prompt and spec it determines the completion.
      num_slots: completions decoded at once.
      max_prompt: longest prompt in tokens.
      max_tokens: longest completion in tokens.
      steps_per_round: tokens a slot may draw before the host looks.
      rounds_ahead: rounds that the device is given before the host has read
        the last one: 1 hides the host's work, and leaves a finished slot idle
        for one round more; 0 waits. None takes 1 on accelerators, where a
        step is short, and 0 on CPUs.
      dtype: of weights, activations and cache.
      constrain: lays an activation on the mesh by logical axis names.
      decode: ids -> text, for stop strings.
    """
    self._model = transformer.make(
        config, dtype=dtype, decoding=True, constrain=constrain)
    self._key = jax.random.key(seed)
    self._num_slots = num_slots
    self._max_prompt = max_prompt
    self._max_tokens = max_tokens
    self._steps = steps_per_round
    if rounds_ahead is None:
      rounds_ahead = int(jax.default_backend() != 'cpu')
    self._rounds_ahead = rounds_ahead
    self._text = decode
    self._params, self._version = None, -1
    self._sizes, self._slots, self._table = None, None, None

    def copy(params):
      # A copy even where nothing changes: the learner donates its arrays.
      params = transformer.decoding_params(config, params)
      return jax.tree.map(lambda x: jnp.copy(x.astype(dtype)), params)

    self._copy = jax.jit(copy)
    self._empty = jax.jit(
        lambda sizes: slots_lib.empty(
            self._model, sizes, requests_lib.MAX_STOP_IDS, dtype, constrain),
        static_argnums=0)
    # A partial of its own: jit keeps one cache a function, and other engines'
    # compilations would be counted here.
    own = functools.partial
    self._grow = jax.jit(own(slots_lib.grow), static_argnums=1)
    self._prefill = jax.jit(
        own(slots_lib.prefill, self._model),
        static_argnames='later', donate_argnums=1)
    self._admit = jax.jit(own(slots_lib.admit), donate_argnums=0)
    self._scrub = jax.jit(own(slots_lib.scrub), donate_argnums=0)
    self._decode = jax.jit(
        own(slots_lib.decode_round, self._model, num_steps=steps_per_round),
        static_argnames='mode', donate_argnums=2)

  @property
  def version(self) -> int:
    """Of the weights loaded; -1 before any."""
    return self._version

  @property
  def num_compilations(self) -> int:
    """Of all functions so far; it stays where the shapes stay."""
    return sum(f._cache_size() for f in (
        self._empty, self._grow, self._prefill, self._admit, self._scrub,
        self._decode))

  def load_weights(self, params: Params, version: int) -> None:
    """Copies the learner's parameters (layers stacked) for sampling.

    Keys and values of the old weights are dropped.
    """
    self._params, self._version = self._copy(params), version
    if self._table is not None:
      self._table.forget()

  def warm_up(self, group_size: int, mode: draw.Mode = draw.Mode()) -> int:
    """Compiles whatever prompts and completions of any length may need.

    Caches take their largest sizes at once; without a warm-up they grow, a
    compilation each, to what is needed.

    Args:
      group_size: requests that follow one another with one prompt, at most.
      mode: of drawing.

    Returns:
      num_compilations, which stays for such requests.
    """
    self._require_weights()
    self._prepare(group_size, self._num_slots, self._max_prompt,
                  self._max_tokens)
    slots, self._slots = self._slots, None
    lengths, longest = [_SMALLEST_CHUNK], self._longest_chunk
    while lengths[-1] < longest:
      lengths.append(_bucket(lengths[-1] + 1, _SMALLEST_CHUNK, longest))
    nothing = (self._sizes.num_prefixes, np.zeros(0, np.int32))
    for length in lengths:
      for count in (1, _PROMPTS):
        for start in (0, 1) if self._max_prompt - 1 > _CHUNK else (0,):
          slots = self._compute_chunks(
              slots, [nothing] * count, start, length)
    slots = self._scrub(self._release(slots, [0]))
    self._slots, _ = self._decode(
        self._params, self._key, slots, np.int32(1), mode=mode)
    return self.num_compilations

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    """Draws one completion a request; results in the order of the requests.

    Raises:
      ValueError: before any work, naming the first request that cannot be
        served.
      RuntimeError: if load_weights was never called.
    """
    pieces: list[list[Piece]] = [[] for _ in requests]
    version = self._version
    for piece in self.stream(requests):
      pieces[piece.index].append(piece)
    return [join(parts, version) for parts in pieces]

  def stream(self, requests: Sequence[Request]) -> Iterator[Piece]:
    """As generate(), but yields tokens round by round as they are drawn.

    Nothing else may be asked of the engine until the iterator ends.
    """
    self._require_weights()
    for request in requests:
      requests_lib.check(
          request, self._model.config.vocab_size, self._max_prompt,
          self._max_tokens, has_text=self._text is not None)
    if not requests:
      return
    before = self.num_compilations
    runs = requests_lib.runs(requests)
    self._prepare(max(runs), len(runs), max(len(r.prompt) for r in requests))
    mode = requests_lib.mode_of(requests)
    waiting = collections.deque(enumerate(requests))
    working: dict[int, _Work] = {}
    reports = collections.deque()
    # Donated from here on, and lost if anything fails.
    slots, self._slots, number = self._slots, None, 0
    while waiting or working:
      if waiting and len(working) < self._num_slots:
        slots = self._fill(slots, waiting, working, number)
      if working:
        slots = self._make_room(slots, working)
        # With nobody waiting there is no reason to stop early.
        patience = max(1, self._num_slots // 8) if waiting else 1 << 30
        slots, report = self._decode(
            self._params, self._key, slots, np.int32(patience), mode=mode)
        reports.append((number, report))
        number += 1
      while reports and (len(reports) > self._rounds_ahead or not waiting):
        cut, broken = [], []
        yield from self._harvest(*reports.popleft(), working, cut, broken)
        if cut:
          slots = self._release(slots, cut)
        if broken:
          slots = self._scrub(slots)
          self._table.forget()
    self._slots = slots
    if self.num_compilations > before:
      _log.info('The sampler compiled %d functions for %s; %d in all.',
                self.num_compilations - before, self._sizes,
                self.num_compilations)

  # ------------------------------------------------------------- sizes

  def _prepare(self, group_size: int, num_prompts: int, longest: int,
               num_tokens: int = 1):
    """Slots of the shapes that are needed; those there are kept if they fit.

    Args:
      group_size: requests that follow one another with one prompt.
      num_prompts: groups of requests.
      longest: prompt, in tokens.
      num_tokens: of a completion, that there is to be room for at once.
    """
    power = lambda n: 1 << (n - 1).bit_length()
    num_lines = min(self._num_slots, power(group_size))
    # More than are needed, so that prompts with stragglers block few slots.
    num_prefixes = min(power(num_prompts), self._num_slots,
                       _SPARE * -(-self._num_slots // num_lines))
    prefix_capacity = _bucket(longest - 1, _SMALLEST_CACHE, self._max_prompt)
    # Later chunks are written whole: they need room for their padding.
    if prefix_capacity > _CHUNK:
      prefix_capacity = -(-prefix_capacity // _CHUNK) * _CHUNK
    sizes = slots_lib.Sizes(
        self._num_slots, num_prefixes, num_lines, prefix_capacity,
        self._capacity(num_tokens))
    old = self._sizes
    if self._slots is not None and old.num_lines == num_lines:
      if all(map(operator.ge, old, sizes)):
        return
      sizes = slots_lib.Sizes(*map(max, old, sizes))
    self._sizes, self._slots = sizes, self._empty(sizes)
    self._table = prefixes.Table(
        sizes.num_prefixes, num_lines, self._num_slots)

  @property
  def _longest_chunk(self) -> int:
    return min(_CHUNK, self._sizes.prefix_capacity)

  def _require_weights(self):
    if self._params is None:
      raise RuntimeError('No weights yet. Call load_weights() first.')

  def _make_room(self, slots, working):
    """Room in every slot for the tokens of one more round."""
    # The host's count is some rounds behind the device's.
    rounds = 1 + self._rounds_ahead
    needed = rounds * self._steps + max(
        len(w.tokens) for w in working.values())
    capacity = self._capacity(needed)
    if capacity > self._sizes.capacity:
      self._sizes = self._sizes._replace(capacity=capacity)
      slots = self._grow(slots, capacity)
    return slots

  def _capacity(self, num_tokens: int) -> int:
    """Of a slot that is to hold so many tokens, the prompt's last with them."""
    return _bucket(num_tokens, _SMALLEST_CACHE, self._max_tokens)

  # ------------------------------------------------------------ rounds

  def _fill(self, slots, waiting, working, number):
    """Gives free slots to waiting requests, in their order."""
    free = [i for i in range(self._num_slots) if i not in working]
    places, admitted, fresh = [], [], []
    while free and waiting:
      index, request = waiting[0]
      taken = self._table.take(request.prompt, free[0])
      if taken is None:
        break
      waiting.popleft()
      places.append(free.pop(0))
      admitted.append(request)
      working[places[-1]] = _Work(index, request, number)
      if taken[1]:
        fresh.append((taken[0], request.prompt))
    if fresh:
      slots = self._compute(slots, fresh)
    return self._put(slots, places, requests_lib.rows(admitted))

  def _compute(self, slots, fresh):
    """Prefills prompts, each without its last token."""
    for start in range(0, max(len(p) for _, p in fresh), _CHUNK):
      chunks = [(which, prompt[start:-1][:_CHUNK]) for which, prompt in fresh
                if start == 0 or len(prompt) - 1 > start]
      for i in range(0, len(chunks), _PROMPTS):
        slots = self._compute_chunks(slots, chunks[i:i + _PROMPTS], start)
    return slots

  def _compute_chunks(self, slots, chunks, start, length=0):
    count = 1 if len(chunks) == 1 else _PROMPTS
    length = _bucket(max(length, *(len(c) for _, c in chunks)),
                     _SMALLEST_CHUNK, self._longest_chunk)
    tokens = np.zeros((count, length), np.int32)
    counts = np.zeros(count, np.int32)
    which = np.full(count, self._sizes.num_prefixes, np.int32)
    for i, (prefix, chunk) in enumerate(chunks):
      tokens[i, :len(chunk)], counts[i], which[i] = chunk, len(chunk), prefix
    return self._prefill(
        self._params, slots, tokens, np.full(count, start, np.int32), counts,
        which, later=start > 0)

  def _put(self, slots, places, rows):
    """Hands `rows` to slots, and the prefixes' members."""
    if not places:
      return slots
    pad = self._num_slots - len(places)
    # One shape, whatever is admitted.
    rows = jax.tree.map(
        lambda x: np.pad(x, ((0, pad),) + ((0, 0),) * (x.ndim - 1)), rows)
    places = np.array([*places, *[self._num_slots] * pad], np.int32)
    members = transformer.Members(*self._table.members())
    return self._admit(slots, members, places, rows)

  def _release(self, slots, places):
    """Stops slots whose completions the host has ended."""
    rows = requests_lib.no_rows(len(places), slots_lib.FREE)
    return self._put(slots, places, rows)

  def _harvest(self, number, report, working, cut, broken):
    """Yields a round's tokens and frees the slots of finished requests.

    Appends to `cut` the slots to be stopped, to `broken` those whose logits
    were not finite.
    """
    report = jax.device_get(report)
    for slot, work in list(working.items()):
      if work.round > number:
        continue  # the report is of the slot's last request
      count, status = int(report.counts[slot]), int(report.status[slot])
      tokens = report.tokens[slot, :count]
      finish = _FINISH.get(status)
      work.tokens.extend(tokens.tolist())
      kept = requests_lib.stop_length(work.tokens, count, work.request.spec,
                                      self._text)
      if kept is not None:
        drop = len(work.tokens) - kept
        count, finish = count - drop, 'stop'
        if status == slots_lib.ACTIVE:
          cut.append(slot)
      if count or finish:
        yield Piece(work.index, tokens[:count].copy(),
                    report.logps[slot, :count].copy(), finish)
      if finish == 'error':
        broken.append(slot)
      if finish:
        del working[slot]
        self._table.leave(slot)


def join(pieces: Sequence[Piece], version: int) -> Completion:
  """A completion from all its pieces, in their order."""
  return Completion(
      np.concatenate([p.tokens for p in pieces]),
      np.concatenate([p.logps for p in pieces]), pieces[-1].finish, version)


def _bucket(size: int, smallest: int, largest: int) -> int:
  """The least of a few sizes that holds `size`."""
  while smallest < size:
    smallest *= _BASE
  return max(1, min(smallest, largest))
