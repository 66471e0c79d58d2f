"""Rewards for the shape of a response, whatever its answer."""
import re

from rlclip import rewards

_STATED = re.compile(
    r'\\f?boxed\s*\{\s*[^\s{}]|(?<!#)####(?!#)\s*\S|<answer>\s*[^\s<]'
    r'|\banswer\s*(?:is\s*:?|:|=)\s*[^\s?.]', re.IGNORECASE)


def states_an_answer(text: str) -> bool:
  """Whether `text`, behind its reasoning block, names its final answer.

  Counted: a box that is not empty, `#### 7`, `<answer>7</answer>`,
  'Answer: 7' and 'the answer is 7'.
  """
  return _STATED.search(text.rpartition('</think>')[2]) is not None


@rewards.register('final_answer')
def final_answer(prompt: str, completion: str, tokens, **fields) -> float:
  """1 where the completion states a final answer, right or wrong, else 0."""
  del prompt, tokens, fields
  return float(states_an_answer(completion))
