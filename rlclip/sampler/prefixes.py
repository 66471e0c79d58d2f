"""Which prompt lies where, and which slot continues it; the host's side."""
import collections

import numpy as np


class Table:
  """Prompts in R prefixes of n lines each, a line a slot that continues it.

  A prompt that nobody continues stays until its room is needed, the one left
  longest ago first, so that it need not be computed again. What is kept is of
  one set of weights: forget() everything when others are loaded.
  """

  def __init__(self, num_prefixes: int, num_lines: int, num_slots: int):
    self._num_slots = num_slots
    self._slots = np.full((num_prefixes, num_lines), num_slots, np.int32)
    self._prompts: list[bytes | None] = [None] * num_prefixes
    # Prefixes that nobody continues; the first is the next to be replaced.
    self._idle = collections.OrderedDict.fromkeys(range(num_prefixes))

  def take(self, prompt: np.ndarray, slot: int) -> tuple[int, bool] | None:
    """Gives `slot` a line of the prompt's prefix.

    Args:
      prompt: int32[S].
      slot: free until now.

    Returns:
      The prefix, and whether it has to be computed; None where all prefixes
      are continued by others.
    """
    key = np.asarray(prompt, np.int32).tobytes()
    prefix = next((i for i, held in enumerate(self._prompts)
                   if held == key and self._free(i).size), None)
    fresh = prefix is None
    if fresh:
      if not self._idle:
        return None
      prefix = next(iter(self._idle))
      self._prompts[prefix] = key
    self._idle.pop(prefix, None)
    self._slots[prefix, self._free(prefix)[0]] = slot
    return prefix, fresh

  def leave(self, slot: int):
    """Frees the line that `slot` has."""
    prefix, line = np.argwhere(self._slots == slot)[0]
    self._slots[prefix, line] = self._num_slots
    if self._free(prefix).size == self._slots.shape[1]:
      self._idle[prefix] = None

  def forget(self):
    """Drops every prompt: none is found again. Slots keep their lines."""
    self._prompts = [None] * len(self._prompts)

  def members(self) -> tuple[np.ndarray, np.ndarray]:
    """Rows int32[R, n] and places int32[B], as transformer.Members has them.

    A slot without a line is sent to some place, and reads nothing of use.
    """
    places = np.zeros(self._num_slots, np.int32)
    used = self._slots < self._num_slots
    places[self._slots[used]] = np.flatnonzero(used)
    return self._slots.copy(), places

  def _free(self, prefix: int) -> np.ndarray:
    """Lines of a prefix that no slot has."""
    return np.flatnonzero(self._slots[prefix] == self._num_slots)
