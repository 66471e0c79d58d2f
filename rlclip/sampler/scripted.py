"""A Sampler that answers from a script, to test what stands behind one."""
from typing import Callable, Sequence

import numpy as np

from rlclip.types import Completion, Params, Request

Script = Callable[[Request], Sequence[int]]


class Scripted:
  """Says what `script` says, cut at the request's limits."""

  def __init__(self, script: Script, log_prob: float = 0.0):
    """Holds the script.

    Args:
      script: request -> token ids; a stop id among them ends the completion,
        and one that never comes lets it run into the limit.
      log_prob: reported for every token, in nats.
    """
    self._script = script
    self._log_prob = log_prob
    self._version = -1

  def load_weights(self, params: Params, version: int) -> None:
    del params
    self._version = version

  def generate(self, requests: Sequence[Request]) -> list[Completion]:
    return [self._answer(request) for request in requests]

  def _answer(self, request):
    tokens, finish = [], 'length'
    for token in list(self._script(request))[:request.spec.max_tokens]:
      tokens.append(token)
      if token in request.spec.stop_ids:
        finish = 'stop'
        break
    logps = np.full(len(tokens), self._log_prob, np.float32)
    return Completion(
        np.array(tokens, np.int32), logps, finish, self._version)
