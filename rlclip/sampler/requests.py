"""Requests as arrays, what they need, and what cannot be served."""
from typing import Callable, Sequence

import numpy as np

from rlclip.sampler import draw
from rlclip.sampler import slots as slots_lib
from rlclip.types import Request, SamplingSpec

MAX_STOP_IDS = 8


def check(request: Request, vocab_size: int, max_prompt: int,
          max_tokens: int, *, max_stop_ids: int | None = MAX_STOP_IDS,
          has_text: bool):
  """Refuses what a sampler of these sizes cannot serve.

  Args:
    request: to be looked at.
    vocab_size: ids are below it.
    max_prompt: tokens of a prompt.
    max_tokens: of a completion.
    max_stop_ids: None for any number.
    has_text: whether the sampler can read its tokens, for stop strings.

  Raises:
    ValueError: naming the request, what was expected and what to do.
  """
  spec, length = request.spec, len(request.prompt)
  def refuse(what, remedy):
    raise ValueError(f'Request {request.id}: {what}. {remedy}')
  if not 1 <= length <= max_prompt:
    refuse(f'its prompt has {length} tokens, expected 1 to {max_prompt}',
           'Raise config.rollout.prompt_length.')
  if not 0 <= np.min(request.prompt) <= np.max(request.prompt) < vocab_size:
    refuse(f'its prompt has ids outside the vocabulary of {vocab_size}',
           'Check the tokenizer.')
  if not 1 <= spec.max_tokens <= max_tokens:
    refuse(f'max_tokens is {spec.max_tokens}, expected 1 to {max_tokens}',
           'Raise config.rollout.completion_length.')
  if not 0 <= spec.min_tokens <= spec.max_tokens:
    refuse(f'min_tokens is {spec.min_tokens}, expected 0 to max_tokens, '
           f'{spec.max_tokens}', 'Lower it.')
  if not 0 <= spec.temperature < np.inf:
    refuse(f'temperature is {spec.temperature}, expected 0 (greedy) or more',
           'Set config.rollout.temperature.')
  if not 0 < spec.top_p <= 1 or spec.top_k < 0:
    refuse(f'top_p is {spec.top_p} and top_k {spec.top_k}, expected '
           f'0 < top_p <= 1 and top_k >= 0', 'Use 1 and 0 to keep all.')
  if max_stop_ids is not None and len(spec.stop_ids) > max_stop_ids:
    refuse(f'{len(spec.stop_ids)} stop ids, expected at most {max_stop_ids}',
           'Drop those the model never emits.')
  outside = [i for i in spec.stop_ids if not 0 <= i < vocab_size]
  if outside:
    refuse(f'stop ids {outside} are outside the vocabulary of {vocab_size}',
           'Check the tokenizer.')
  if '' in spec.stop_strings:
    refuse('an empty stop string', 'Leave it out.')
  if spec.stop_strings and not has_text:
    refuse('it has stop strings, and the sampler has no tokenizer',
           'Give the engine `decode`; servers are not asked for them.')


def mode_of(requests: Sequence[Request]) -> draw.Mode:
  """What any of them asks for."""
  specs = [request.spec for request in requests]
  return draw.Mode(
      greedy=any(s.temperature == 0 for s in specs),
      filtered=any(s.top_p < 1 or s.top_k or s.min_tokens for s in specs))


def runs(requests: Sequence[Request]) -> list[int]:
  """How many requests with one prompt follow one another, group by group."""
  counts = []
  for i, request in enumerate(requests):
    if i and np.array_equal(requests[i - 1].prompt, request.prompt):
      counts[-1] += 1
    else:
      counts.append(1)
  return counts


def rows(requests: Sequence[Request]) -> slots_lib.Rows:
  """Requests at their start, as rows of slots; their prefixes lie ready."""
  stop_ids = np.full((len(requests), MAX_STOP_IDS), -1, np.int32)
  for i, request in enumerate(requests):
    stop_ids[i, :len(request.spec.stop_ids)] = request.spec.stop_ids
  field = lambda name, dtype: np.array(
      [getattr(r.spec, name) for r in requests], dtype)
  zeros = lambda: np.zeros(len(requests), np.int32)
  return slots_lib.Rows(
      # Ids beyond 32 bits are folded; they key draws and nothing else.
      ids=np.array([r.id & 0xffffffff for r in requests], np.uint32),
      lengths=zeros(), num_tokens=zeros(),
      last_tokens=np.array([r.prompt[-1] for r in requests], np.int32),
      status=np.full(len(requests), slots_lib.ACTIVE, np.int32),
      settings=draw.Settings(
          temperatures=field('temperature', np.float32),
          top_ps=field('top_p', np.float32), top_ks=field('top_k', np.int32),
          min_tokens=field('min_tokens', np.int32),
          max_tokens=field('max_tokens', np.int32), stop_ids=stop_ids))


def no_rows(count: int, status: int) -> slots_lib.Rows:
  """Rows that work on nothing."""
  nothing = Request(0, np.zeros(1, np.int32), SamplingSpec(1, ()))
  return rows([nothing] * count)._replace(
      status=np.full(count, status, np.int32))


def stop_length(tokens: Sequence[int], count: int, spec: SamplingSpec,
                text: Callable[[Sequence[int]], str]) -> int | None:
  """How many tokens complete a stop string, if any of the last ones does.

  Args:
    tokens: of a completion so far.
    count: how many of them are new.
    spec: with its stop strings.
    text: ids -> text.

  Returns:
    The least number of tokens whose text has a stop string; None for none.
  """
  has = lambda n: any(s in text(tokens[:n]) for s in spec.stop_strings)
  if not spec.stop_strings or not count or not has(len(tokens)):
    return None
  return next(n for n in range(len(tokens) - count + 1, len(tokens) + 1)
              if has(n))
