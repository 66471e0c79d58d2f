"""Answers to reasoning-gym's puzzles, by each data set's own scorer."""
import json
import re

from rlclip import rewards

_ANSWER = re.compile(r'<answer>(.*?)</answer>', re.DOTALL)


@rewards.register('reasoning_gym')
def reasoning_gym(
    prompt: str, completion: str, tokens, *, dataset: str, entry: str,
    **fields) -> float:
  """The data set's score in [0, 1] of what the last answer tags hold, else 0.

  The score is passed on as it is: many data sets give a little for an answer
  that is wrong. Evaluation counts an answer as right from 1 on.
  """
  del prompt, tokens, fields
  import reasoning_gym as library
  found = _ANSWER.findall(completion)
  if not found:
    return 0.0
  score = library.get_score_answer_fn(dataset)
  return float(score(answer=found[-1].strip(), entry=json.loads(entry)))
