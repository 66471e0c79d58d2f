"""Whether problems are the same but for how they are set.

Two measures. The normalized text of a problem is its letters (case folded),
digits and operators, without spaces, other punctuation, dollar signs and
braces; equal texts are the same problem. And a problem is found in another
where that has at least half of its runs of 13 words: a problem with a sentence
put in front, or a detail changed. Runs that stand in more than 5 different
training problems are turns of phrase and not counted: "where m and n are
relatively prime positive integers find m n" stands in a hundred.

Source: runs of 13 words are those of Brown et al., arXiv 2005.14165 (GPT-3),
appendix C, second-hand; the share and the 5 problems are choices made here.
"""
import collections
import re
from typing import Mapping, NamedTuple, Sequence
import unicodedata

import numpy as np

_RUN = 13
_SHARE = 0.5
_PHRASE = 5  # training problems that a run may stand in, to count
_LAYOUT = re.compile(r'\\(?:left|right|displaystyle|[,;:!> ])')
_TEXT = re.compile(r'[^\W_]+|[-+*/^=<>|%()\[\]\u2212]|(?<=\d)\.(?=\d)')
_WORDS = re.compile(r'[^\W_]+')


class Overlap(NamedTuple):
  """A training problem that a test problem is found in.

  Attributes:
    id: of the training example.
    task: the evaluation task.
    test_id: of its example.
    share: of the test problem's runs of 13 words; 1 where the texts are equal.
  """
  id: str
  task: str
  test_id: str
  share: float


def normalized(problem: str) -> str:
  """The text that two copies of a problem have in common."""
  text = unicodedata.normalize('NFKC', problem).casefold()
  return ''.join(_TEXT.findall(_LAYOUT.sub(' ', text)))


def duplicates(
    ids: Sequence[str], texts: Sequence[str]) -> list[tuple[str, str]]:
  """(id, id of the first one like it), for all but the first.

  Args:
    ids: of examples.
    texts: theirs, normalized.
  """
  first: dict[str, str] = {}
  pairs = [(i, first.setdefault(text, i)) for i, text in zip(ids, texts)]
  return [(i, other) for i, other in pairs if i != other]


def overlaps(
    ids: Sequence[str], problems: Sequence[str],
    tests: Mapping[str, tuple[Sequence[str], Sequence[str]]]
) -> list[Overlap]:
  """Test problems that training problems hold.

  Args:
    ids: of the training examples.
    problems: their texts.
    tests: from tasks to the ids and texts of their test examples.

  Returns:
    In the order of training; of a training example, one for each test problem
    found in it.
  """
  keys = [(task, i) for task, (names, _) in tests.items() for i in names]
  texts = [text for _, some in tests.values() for text in some]
  found: dict[tuple[int, int], float] = {}
  rows, equal = collections.defaultdict(list), collections.defaultdict(list)
  for row, problem in enumerate(problems):
    rows[normalized(problem)].append(row)
  for place, text in enumerate(texts):
    equal[normalized(text)].append(place)
  copies = list(rows.values())
  shares = _shares([problems[same[0]] for same in copies], texts)
  for (number, place), share in shares.items():
    if share >= _SHARE:
      found.update({(row, place): share for row in copies[number]})
  for text in rows.keys() & equal.keys():
    found.update({(row, place): 1.0
                  for row in rows[text] for place in equal[text]})
  return [Overlap(ids[row], *keys[place], share)
          for (row, place), share in sorted(found.items())]


def _shares(problems, texts) -> dict[tuple[int, int], float]:
  """(training row, test row) -> share of the test row's runs, where any.

  Args:
    problems: of training, all different.
    texts: of test problems.
  """
  vocabulary: dict[str, int] = {}
  runs, owners = _runs(texts, vocabulary)
  places = collections.defaultdict(set)
  for run, owner in zip(runs.tolist(), owners.tolist()):
    places[run].add(owner)
  runs, owners = _runs(problems, vocabulary)
  hit = np.isin(runs, np.fromiter(places, np.uint64, len(places)))
  hits = set(zip(owners[hit].tolist(), runs[hit].tolist()))
  spread = collections.Counter(run for _, run in hits)
  totals = collections.Counter(
      owner for run, found in places.items() if spread[run] <= _PHRASE
      for owner in found)
  shared = collections.Counter(
      (row, place) for row, run in hits if spread[run] <= _PHRASE
      for place in places[run])
  return {pair: count / totals[pair[1]] for pair, count in shared.items()}


def _runs(texts, vocabulary) -> tuple[np.ndarray, np.ndarray]:
  """A 64-bit hash of each run of 13 words, and the row it stands in.

  Two different runs among ten million agree with a chance of 3e-6.
  """
  words, rows = [], []
  for row, text in enumerate(texts):
    folded = unicodedata.normalize('NFKC', text).casefold()
    found = _WORDS.findall(_LAYOUT.sub(' ', folded))
    words += [vocabulary.setdefault(w, len(vocabulary)) for w in found]
    rows += [row] * len(found)
  count = max(len(words) - _RUN + 1, 0)
  owners = np.array(rows, np.int64)
  # A table of random numbers by word; grows with it, the same from the start.
  random = np.random.RandomState(0).randint(
      0, 1 << 63, size=max(len(vocabulary), 1), dtype=np.uint64)
  values = random[np.array(words, np.int64)] if words else np.zeros(
      0, np.uint64)
  total = np.zeros(count, np.uint64)
  for offset in range(_RUN):
    total = total * np.uint64(0x9E3779B97F4A7C15) + values[
        offset:offset + count]
  whole = owners[:count] == owners[_RUN - 1:_RUN - 1 + count]
  return total[whole], owners[:count][whole]
