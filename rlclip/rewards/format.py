"""Rewards for the shape of a response, whatever its answer."""
import re

from rlclip import rewards

# What a quantifier with + behind it has taken it keeps: a million spaces are
# read once, not once for every place where they might end.
_STATED = re.compile(
    r'\\f?boxed\s*\{\s*[^\s{}]|(?<!#)####(?!#)\s*\S|<answer>\s*[^\s<]'
    r'|\banswer\s*+(?:is\s*+:?|:|=)\s*+[^\s?.]', re.IGNORECASE)
# Some chat templates write the first tag into the prompt.
_THINK = re.compile(r'\s*+(?:<think>)?(?P<thought>.*?)</think>(?P<rest>.*)',
                    re.DOTALL)
_ANSWER = re.compile(r'\s*<answer>(?P<answer>.*?)</answer>\s*', re.DOTALL)
_TAGS = re.compile(r'</?(?:think|answer)>')


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


@rewards.register('think')
def think(prompt: str, completion: str, tokens, **fields) -> float:
  """1 for reasoning in one pair of think tags with text behind it, else 0.

  The opening tag may be the prompt's last word.
  """
  del tokens, fields
  parts = _split(prompt, completion)
  return float(parts is not None and bool(parts[1].strip())
               and _TAGS.search(''.join(parts)) is None)


@rewards.register('think_answer')
def think_answer(prompt: str, completion: str, tokens, **fields) -> float:
  """1 for `<think>...</think> <answer>...</answer>` and no more, else 0.

  Source: DeepSeek-AI, arXiv 2501.12948 (R1-Zero's template), second-hand.
  """
  del tokens, fields
  parts = _split(prompt, completion)
  answer = _ANSWER.fullmatch(parts[1]) if parts else None
  return float(answer is not None and bool(answer['answer'].strip())
               and _TAGS.search(parts[0] + answer['answer']) is None)


def _split(prompt: str, completion: str) -> tuple[str, str] | None:
  """(reasoning, what follows); None without tags, or an empty reasoning."""
  opened = prompt.rstrip().endswith('<think>')
  found = _THINK.fullmatch(completion)
  if found is None or opened == completion.lstrip().startswith('<think>'):
    return None
  return (found['thought'], found['rest']) if found['thought'].strip() else None
