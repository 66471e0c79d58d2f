"""From scored completions to fixed-size arrays, and how to cut and fill them.

Everything is cut by prompt: the G rows of a group stay together.
"""
from typing import Sequence

import numpy as np

from rlclip.types import Batch, Completion, Packing, Prompt

# Fields of Batch that stand once a prompt; all others stand once a row.
_BY_PROMPT = ('prompts', 'prompt_lengths')
_FIELDS = tuple(f for f in Batch._fields if f != 'packing')
_ROW_COUNTS = 16  # numbers of packed rows that there may be: compilations


def make_batch(
    prompts: Sequence[Prompt],
    completions: Sequence[Sequence[Completion]],
    rewards: np.ndarray,
    advantages: np.ndarray,
    *,
    prompt_length: int,
    completion_length: int,
    drop_truncated: bool = False,
) -> Batch:
  """Pads P prompts and their P * G completions to fixed sizes.

  A row leaves the loss (mask all False, advantage 0) where its reward is nan,
  where sampling failed, and, by `drop_truncated`, where it ended by length.
  Its reward is kept, a nan as 0: nan times a zero mask would still be nan.

  Args:
    prompts: P prompts.
    completions: [P][G], those of prompt p at p.
    rewards: float[P, G]; nan where a reward is None.
    advantages: float[P, G].
    prompt_length: S, to pad to.
    completion_length: C, to pad to.
    drop_truncated: whether completions that ended by length leave the loss.

  Returns:
    A Batch of numpy arrays. `old_logps` holds the behavior log-probs until the
    learner recomputes it. `group_mean` is over the rewards that are not nan.

  Raises:
    ValueError: shapes that disagree, or a sequence longer than its padding.
  """
  rewards = np.asarray(rewards, np.float32)
  advantages = np.asarray(advantages, np.float32)
  shape = (len(prompts), len(completions[0]) if len(completions) else 0)
  sizes = {len(group) for group in completions}
  if (len(completions) != shape[0] or sizes != {shape[1]}
      or rewards.shape != shape or advantages.shape != shape):
    raise ValueError(
        'make_batch needs as many completions for each prompt, and rewards '
        f'and advantages of shape [P, G]; got {len(prompts)} prompts, '
        f'{len(completions)} groups of {sorted(sizes)} completions, rewards '
        f'{rewards.shape}, advantages {advantages.shape}.')
  rows = [completion for group in completions for completion in group]
  tokens = [row.tokens for row in rows]
  lengths = np.array([len(row) for row in tokens])
  scored = ~np.isnan(rewards).reshape(-1)
  truncated = np.array([row.finish == 'length' for row in rows])
  kept = scored & np.array([row.finish != 'error' for row in rows])
  if drop_truncated:
    kept &= ~truncated
  mask = np.arange(completion_length) < lengths[:, None]
  logps = _pad(
      [row.logps for row in rows], completion_length, np.float32, 'completion')
  known = np.where(np.isnan(rewards), 0, rewards)
  count = np.maximum((~np.isnan(rewards)).sum(1, keepdims=True), 1)
  group_mean = known.sum(1, keepdims=True) / count
  return Batch(
      prompts=_pad(
          [p.tokens for p in prompts], prompt_length, np.int32, 'prompt'),
      prompt_lengths=np.array([len(p.tokens) for p in prompts], np.int32),
      completions=_pad(tokens, completion_length, np.int32, 'completion'),
      mask=mask & kept[:, None],
      behavior_logps=logps,
      old_logps=logps.copy(),
      advantages=np.where(kept, advantages.reshape(-1), 0).astype(np.float32),
      rewards=known.reshape(-1),
      group_size=np.broadcast_to(count, shape).astype(
          np.float32).reshape(-1),
      group_mean=np.broadcast_to(group_mean, shape).astype(
          np.float32).reshape(-1),
      truncated=truncated)


def select(batch: Batch, prompts: np.ndarray) -> Batch:
  """The batch of some prompts and all their rows.

  Args:
    batch: P prompts.
    prompts: int[Q] indices into them, in the order wanted.

  Returns:
    A batch of Q prompts.
  """
  prompts = np.asarray(prompts)
  size = _group_size(batch)
  rows = (prompts[:, None] * size + np.arange(size)).reshape(-1)
  pick = lambda name, array: array[prompts if name in _BY_PROMPT else rows]
  return Batch(*(pick(n, a) for n, a in zip(_FIELDS, batch)))


def minibatches(
    batch: Batch, num: int, *, order: np.ndarray | None = None) -> list[Batch]:
  """Cuts a batch into `num` of equal size, groups whole.

  Args:
    batch: P prompts, P a multiple of `num` (see `pad_groups`).
    num: parts.
    order: int[P], a permutation of the prompts; None keeps theirs.

  Returns:
    `num` batches of P / num prompts.

  Raises:
    ValueError: P is no multiple of `num`, or `order` no permutation.
  """
  size = len(batch.prompts)
  order = np.arange(size) if order is None else np.asarray(order)
  if num < 1 or size % num:
    raise ValueError(
        f'minibatches needs a number of prompts that {num} divides, got '
        f'{size}. Change the number of minibatches or pad_groups first.')
  if not np.array_equal(np.sort(order), np.arange(size)):
    raise ValueError(
        f'minibatches needs a permutation of range({size}), got {order}.')
  return [select(batch, part) for part in np.split(order, num)]


def pad_groups(batch: Batch, multiple: int) -> Batch:
  """Adds empty groups until `multiple` divides the number of prompts.

  An empty group is a prompt of one token 0 with masked completions. It weighs
  nothing in any mean.

  Args:
    batch: P prompts.
    multiple: devices or minibatches to divide over.

  Returns:
    The batch itself, or a longer one.
  """
  size, group = len(batch.prompts), _group_size(batch)
  missing = -size % multiple
  if not missing:
    return batch
  fill = lambda name, array: np.concatenate([array, np.zeros(
      (missing * (1 if name in _BY_PROMPT else group), *array.shape[1:]),
      array.dtype)])
  padded = Batch(*(fill(n, a) for n, a in zip(_FIELDS, batch)))
  # Length 1, not 0: the first completion token is predicted by the prompt.
  padded.prompt_lengths[size:] = 1
  return padded


def pack(batch: Batch, num_parts: int = 1) -> Batch:
  """Says where completions go so that few slots are empty.

  Each row is filled with completions of one group, the longest first, each
  into the first row that has room.

  Args:
    batch: P prompts; completions as long as their masks.
    num_parts: micro-batches that it will be cut into; each is packed alone.

  Returns:
    The batch with its packing.

  Raises:
    ValueError: P is no multiple of `num_parts`.
  """
  num_rows, size = batch.mask.shape
  num_prompts, group = len(batch.prompts), _group_size(batch)
  if num_prompts % num_parts:
    raise ValueError(
        f'pack needs a number of prompts that {num_parts} micro-batches '
        f'divide, got {num_prompts}.')
  lengths = np.where(batch.mask, np.arange(size) + 1, 0).max(1)
  groups = [_fill_rows(part, size) for part in lengths.reshape(-1, group)]
  parts = np.split(np.arange(num_prompts), num_parts)
  longest = max(len(groups[p]) for p in range(num_prompts))
  width = 1 << (longest - 1).bit_length()
  step = -(-num_rows // num_parts // _ROW_COUNTS)
  height = max(sum(len(groups[p]) for p in part) for part in parts)
  height = -(-height // step) * step
  packed = [_pack_part([groups[p] for p in part], lengths, part[0] * group,
                       (height, size, width, group)) for part in parts]
  return batch._replace(packing=Packing(*map(np.concatenate, zip(*packed))))


def _fill_rows(lengths, size) -> list[list[int]]:
  """Rows of at most `size` slots, each a list of indices of completions."""
  rows, room = [], []
  for i in np.argsort(-lengths, kind='stable'):
    r = next((r for r, left in enumerate(room) if left >= lengths[i]), None)
    if r is None:
      r = len(rows)
      rows.append([])
      room.append(size)
    rows[r].append(int(i))
    room[r] -= lengths[i]
  return rows


def _pack_part(groups, lengths, offset, shape) -> Packing:
  """The packing of one micro-batch, whose rows begin at `offset`."""
  height, size, width, group = shape
  num_rows = len(groups) * group
  source = np.full((height, size), num_rows * size, np.int32)
  first = np.full(num_rows, height * size, np.int32)
  rows = np.full((len(groups), width), height, np.int32)
  places, r = np.zeros(height, np.int32), 0
  for p, filled in enumerate(groups):
    for i, members in enumerate(filled):
      members = [m for m in members if lengths[offset + p * group + m]]
      rows[p, i], places[r], slot = r, p * width + i, 0
      for member in members:
        n = p * group + member
        length = lengths[offset + n]
        first[n] = r * size + slot
        source[r, slot:slot + length] = n * size + np.arange(length)
        slot += length
      r += 1
  return Packing(source, first, rows, places)


def _group_size(batch: Batch) -> int:
  return len(batch.completions) // len(batch.prompts)


def _pad(sequences, length: int, dtype, kind: str) -> np.ndarray:
  """Stacks sequences, padded with zeros on the right."""
  longest = max(map(len, sequences), default=0)
  if longest > length:
    raise ValueError(
        f'Expected {kind}s of at most {length} tokens, got one of {longest}. '
        f'Raise {kind}_length or filter the {kind}s.')
  out = np.zeros((len(sequences), length), dtype)
  for row, sequence in zip(out, sequences):
    row[:len(sequence)] = sequence
  return out
