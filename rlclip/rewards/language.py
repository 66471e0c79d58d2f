"""A reward for answering in the script of the question.

By Unicode's scripts: it tells Chinese from English, which is what reasoning
models mix, and cannot tell French from English.
"""
import collections
import re
import unicodedata

from rlclip import rewards

# Not language: code, formulas, LaTeX's commands, tags, addresses.
_NOT_PROSE = re.compile(
    r'```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|\\\[.*?\\\]'
    r'|\\\(.*?\\\)|\\[A-Za-z]+|</?\w+>|<\|[^|]*\|>|https?://\S+', re.DOTALL)
# First word of a letter's Unicode name -> its script, where they differ.
_SCRIPTS = {
    'CJK': 'HAN', 'IDEOGRAPHIC': 'HAN', 'HIRAGANA': 'KANA', 'KATAKANA': 'KANA',
    'HALFWIDTH': 'KANA', 'FULLWIDTH': 'LATIN', 'MODIFIER': '', 'FEMININE': '',
    'MASCULINE': '', 'MICRO': '', 'MATHEMATICAL': '', 'SUPERSCRIPT': '',
    'DOUBLE-STRUCK': '', 'SCRIPT': '', 'ANGSTROM': '', 'OHM': '', 'KELVIN': ''}
# Scripts that a language is written with besides its own.
_ALSO = {'KANA': {'HAN'}, 'HANGUL': {'HAN'}}


def count_scripts(text: str) -> collections.Counter:
  """Letters of each script in the prose of a text."""
  counts = collections.Counter()
  for letter in filter(str.isalpha, _NOT_PROSE.sub(' ', text)):
    word = unicodedata.name(letter, '').partition(' ')[0]
    counts[_SCRIPTS.get(word, word)] += 1
  counts.pop('', None)
  return counts


def script_of(text: str) -> str:
  """The script that a text is written in; empty where it has no letters.

  A text with at least a tenth of kana or hangul is Japanese or Korean, however
  many Chinese characters are in it.
  """
  counts = count_scripts(text)
  for script, others in _ALSO.items():
    own = counts[script]
    if own and own * 10 >= own + sum(counts[other] for other in others):
      counts[script] += sum(counts[other] for other in others)
  return max(counts, key=counts.get, default='')


@rewards.register('language')
def language(prompt: str, completion: str, tokens, *, script: str = '',
             **fields) -> float | None:
  """Share of a completion's letters that are of the expected script.

  The names of formulas, code and tags do not count; 1 where nothing is left.

  Args:
    prompt: its script is expected, where no other is given.
    completion: to be looked at.
    tokens: not looked at.
    script: a field of the example: LATIN, HAN, KANA, HANGUL, CYRILLIC, ARABIC
      or another of Unicode's, in capitals.
    **fields: not looked at.

  Returns:
    In [0, 1]; None where neither field nor prompt names a script.

  Source: DeepSeek-AI, arXiv 2501.12948 (R1, language consistency: the share
  of words in the target language), second-hand; by letters is ours.
  """
  del tokens, fields
  expected = script or script_of(prompt)
  if not expected:
    return None
  counts = count_scripts(completion)
  total = counts.total()
  allowed = {expected} | _ALSO.get(expected, set())
  return sum(counts[s] for s in allowed) / total if total else 1.0
