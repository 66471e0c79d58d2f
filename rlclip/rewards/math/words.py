"""Answers in words: numbers, choices, clock times, plain text."""
import re

_SMALL = {word: i for i, word in enumerate(
    'zero one two three four five six seven eight nine ten eleven twelve '
    'thirteen fourteen fifteen sixteen seventeen eighteen nineteen'.split())}
_TENS = {word: 10 * i for i, word in enumerate(
    'twenty thirty forty fifty sixty seventy eighty ninety'.split(), 2)}
_LARGE = {'hundred': 100, 'thousand': 1000, 'million': 10 ** 6,
          'billion': 10 ** 9, 'trillion': 10 ** 12}
_FIXED = {
    'half': r'\frac{1}{2}', 'one half': r'\frac{1}{2}',
    'a half': r'\frac{1}{2}',
    'one third': r'\frac{1}{3}', 'a third': r'\frac{1}{3}',
    'two thirds': r'\frac{2}{3}', 'one quarter': r'\frac{1}{4}',
    'a quarter': r'\frac{1}{4}', 'one fourth': r'\frac{1}{4}',
    'three quarters': r'\frac{3}{4}', 'three fourths': r'\frac{3}{4}',
    'one fifth': r'\frac{1}{5}', 'a dozen': '12',
    'infinitely many': r'\infty', 'infinite': r'\infty',
    'infinity': r'\infty', 'empty set': r'\emptyset',
    'the empty set': r'\emptyset'}
_MIXED = re.compile(r'([0-9]+(?:\.[0-9]+)?) (hundred|thousand|million|billion'
                    r'|trillion)')
_DECORATION = ' \t\n.\'"`*:_'

LETTERS = 'A-J'
_LETTER = re.compile(rf'[\s(\[{{]*([{LETTERS}a-j])[\s)\]}}]*[.:,]?\s*')
_CHOICES = (  # how a choice is named in a longer answer, clearest first
    re.compile(rf'\banswer(?:\s+is|:)[\s:*$(]*([{LETTERS}])(?![A-Za-z])'),
    re.compile(rf'\(([{LETTERS}])\)'),
    re.compile(rf'^\s*([{LETTERS}])(?=[.:,)]|\s|[^\x00-\x7f]|$)'),
    re.compile(rf'\b(?:it\'s|is|option|choice|choose|it must be)\s+'
               rf'([{LETTERS}])(?![A-Za-z])'),
    re.compile(rf'(?<![A-Za-z\'])([{LETTERS}])(?![A-Za-z\']|\s*[-+*/^=_0-9])'))
_SEVERAL = re.compile(
    rf'(?<![A-Za-z])\(?[{LETTERS}]\)?\s*(?:,|and|or|/|&)\s*(?:and|or)?\s*'
    rf'\(?[{LETTERS}](?![A-Za-z])')
_REJECTED = re.compile(
    rf'(?:\bnot|n\'t(?:\s+be)?|\bfor it to be|\u4e0d\u662f)\s*'
    rf'\(?[{LETTERS}]\)?(?:\s*(?:or|and|,)\s*\(?[{LETTERS}]\)?)*(?![A-Za-z])')
_NAMED = re.compile(
    rf'\(?([{LETTERS}])(?:\)[.:]?|[.:]|(?=\s))\s*(.+)', re.DOTALL)
_CLOCK = re.compile(
    r'([0-9]{1,2})\s*(?::\s*([0-5][0-9]))?\s*([ap])\.?\s*m\.?', re.IGNORECASE)
_HOURS = re.compile(r'([0-9]{1,2})\s*:\s*([0-5][0-9])')


def plain(text: str) -> str:
  r"""Words without case, `\text`, quotes and the closing full stop."""
  text = re.sub(r'\\text\s*\{([^{}]*)\}', r' \1 ', text)
  text = re.sub(r'\\(?:text|mathrm|mathbf|rm|bf)(?![a-z])|[{}$\\]', ' ', text)
  text = re.sub(r'(?<=[a-zA-Z])-(?=[a-zA-Z])', ' ', text)
  return re.sub(r'\s+', ' ', text).strip(_DECORATION).casefold()


def are_words(text: str) -> bool:
  r"""Whether a text is words, not a formula: letters outside of commands.

  Letters side by side are a product where they are few and small.
  """
  inside = re.sub(r'\\text\s*\{([^{}]*)\}', r' \1 ', text)
  if re.search(r'[=<>+*/^_{}|\\]', inside):
    return False
  return bool(re.search(r'[A-Z]{3}|[a-z]{4}|[A-Z][a-z]{2}', inside)
              or '\\text' in text and re.search('[a-zA-Z]{2}', inside)
              or re.search(r'[^\W\d_]{2}', inside) and not inside.isascii())


def number(text: str) -> str | None:
  """The LaTeX of a number in words, or None: 'forty-two', '1.5 million'."""
  text = plain(text)
  if len(text) > 100:
    return None
  if mixed := _MIXED.fullmatch(text):
    return f'{mixed[1]}\\times 10^{{{len(str(_LARGE[mixed[2]])) - 1}}}'
  if text in _FIXED:
    return _FIXED[text]
  sign = ''
  if text.startswith(('minus ', 'negative ')):
    sign, text = '-', text.partition(' ')[2]
  total = current = 0
  words = [word for word in text.split() if word != 'and']
  if not words:
    return None
  for word in words:
    if word in _SMALL:
      current += _SMALL[word]
    elif word in _TENS:
      current += _TENS[word]
    elif word == 'hundred':
      current = max(current, 1) * 100
    elif word in _LARGE:
      total, current = total + max(current, 1) * _LARGE[word], 0
    else:
      return None
  return f'{sign}{total + current}'


def gold_choice(gold: str) -> tuple[str, str] | None:
  """Letter and text of a reference such as 'B', '(B)', 'B) 12'; or None."""
  text = re.sub(r'\\text\s*\{([^{}]*)\}', r'\1', gold).strip()
  letter = _LETTER.fullmatch(text)
  if letter and letter[1].isupper():
    return letter[1], ''
  named = _NAMED.fullmatch(text)
  # 'A = 5' is no choice, and '(A, B)' is a pair.
  if named and re.match(r'[A-Za-z0-9][\w ]*$', named[2]) and (
      text[0] == '(' or text[1] in ').:' or named[2][0].isalpha()
      and len(named[2].split()[0]) > 1):
    return named[1], named[2]
  return None


def choice(answer: str) -> str:
  """The one letter that an answer to a multiple choice names, or ''."""
  text = re.sub(r'\\text\s*\{([^{}]*)\}', r'\1', answer).strip()
  letter = _LETTER.fullmatch(text)
  if letter:
    return letter[1].upper()
  text = _REJECTED.sub(' ', text[:2000])
  if _SEVERAL.search(text):
    return ''
  for pattern in _CHOICES:
    letters = pattern.findall(text)
    if letters:
      # Two different ones are no answer.
      return letters[0] if len(set(letters)) == 1 else ''
  return ''


def clock(text: str) -> tuple[int, int] | None:
  """Hour of 24 and minute of a time with a.m. or p.m., or None."""
  match = _CLOCK.fullmatch(re.sub(
      r'\\text\s*\{([^{}]*)\}', r'\1', text).strip())
  if not match:
    return None
  hour = int(match[1]) % 12 + (12 if match[3].lower() == 'p' else 0)
  return hour, int(match[2] or 0)


def hours(text: str) -> tuple[int, int] | None:
  """Hour and minute of '12:05': a time rather than a ratio, or None."""
  match = _HOURS.fullmatch(text.strip())
  return (int(match[1]), int(match[2])) if match else None
