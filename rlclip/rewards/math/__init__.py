"""Whether two mathematical answers are the same.

Around math-verify's parser (latex2sympy2_extended) and sympy: `extract` finds
the answer in a response, `normalize` gives it one spelling, `structure` splits
it into lists, tuples, intervals and relations, `compare` compares these part by
part and `quantities` the formulas in them: exactly, or to many digits in
`values`, where nothing is evaluated beyond bounds.

What is the same:

- Values, exactly, however spelled. A decimal answer stands for an exact
  reference from six significant digits on. A reference with two or more digits
  behind a point is taken for rounded, unless it is a simple fraction (2.5).
- `10%` is 0.1, and 10 where either side leaves the sign out. Units may be left
  out; others are converted. Degrees are converted to radians.
- Lists and sets in any order, tuples in theirs; `x=5` and 5; equations and
  inequalities that hold for the same values; an inequality and its interval.
- Expressions for all values of their variables, over the reals.
- Choices by their letter, words without case.

No time limits in here: signals work in main threads only and do not stop C
loops. All steps are bounded instead; run untrusted answers through
`rlclip.rewards.pool` all the same, whose deadline kills.
"""
import re

from rlclip import rewards
from rlclip.rewards.math import (compare, extract, normalize, numbers, prose,
                                 words)

plain_number = prose.plain_number


def equivalent(gold: str, answer: str) -> bool | None:
  """Whether `answer` is the same mathematical object as `gold`.

  Args:
    gold: reference answer, as data sets write it.
    answer: a bare answer, or a response that it has to be found in.

  Returns:
    The verdict, or None where `gold` cannot be read: it says nothing, or it is
    longer than any answer (`normalize.LONGEST`).
  """
  reference = normalize.latex(prose.gold_text(gold))
  if len(reference) > normalize.LONGEST or not re.search(
      r'\w', words.plain(reference)):
    return None
  found, _ = extract.find(answer)
  number = numbers.read(numbers.ungroup(reference))
  if number is not None:
    plain = prose.plain_number(found)
    if plain is not None and plain == number.value:
      return True
  if found.strip() and found.strip() == gold.strip():
    return True
  if prose.decimal_comma(reference) and '.' in found:
    reference = reference.replace(',', '.')
  foreign = prose.is_foreign(answer)
  if found.strip() and any(
      _matches(reference, reading)
      for reading in prose.readings(reference, found, foreign)):
    return True
  return False if compare.readable(reference) else None


def _matches(gold: str, answer: str) -> bool:
  if not re.search(r'\w', answer):
    return False
  if normalize.key(gold) == normalize.key(answer):
    # Also where it could not be evaluated, such as 9^{9^{9}}.
    return True
  choice = words.gold_choice(gold)
  if choice:
    return _same_choice(choice, answer)
  return compare.same(gold, answer)


def _same_choice(gold: tuple[str, str], answer: str) -> bool:
  letter, text = gold
  named = words.choice(answer)
  if named:
    return named == letter
  return bool(text) and words.plain(answer) == words.plain(text)


def score(response: str, gold: str) -> float | None:
  """1 where the response's final answer is `gold`, else 0.

  Reasoning up to the last `</think>` gives no answer.

  Args:
    response: a whole completion.
    gold: reference answer.

  Returns:
    1.0, 0.0, or None where `gold` cannot be read.
  """
  verdict = equivalent(gold, response)
  return None if verdict is None else float(verdict)


@rewards.register('math')
def math(
    prompt: str, completion: str, tokens, *, gold: str, **fields
) -> float | None:
  """`score` of the completion against the field `gold`."""
  del prompt, tokens, fields
  return score(completion, gold)
