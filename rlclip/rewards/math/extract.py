"""Finds the final answer in a response."""
import re

_END = re.compile(
    r'<\|(?:im_end|endoftext|eot_id|im_start|end|eos)\|>|</s>|<eos>'
    r'|\\end\{document\}')
_THOUGHT = re.compile(r'</(?:think|thinking|reasoning|thought)>')
_OPEN_THOUGHT = re.compile(r'<(?:think|thinking)>')
_TAG = re.compile(r'<answer>(.*?)(?:</answer>|$)', re.DOTALL)
_BOX = re.compile(r'\\+f?box(?:ed)?(?![A-Za-z])\s*')
_JOINT = re.compile(
    r'(?:[\s$,;.&]|\\[()\[\],;:! ]|\\q?quad|\band\b|\bor\b'
    r'|\\text\s*\{[^{}]{0,60}\b(?:and|or)\b[^{}]{0,60}\}|\\\\|/)*')
_BEHIND = re.compile(
    r'[\s$}]*(\\?%|percent(?:age)?\b|pct\b|\^\s*\{?\s*\\circ\}?)')
_HASHES = re.compile(r'(?<!#)####(?!#)[ \t]*([^\s#][^\n]*)')
_CORRECTION = re.compile(
    r'\b(?:wait|actually|correction|mistake|wrong|incorrect|instead|sorry|oops'
    r'|should be|no,)', re.IGNORECASE)
_STATED = re.compile(
    r'(?:\bfinal answers?(?:\s+(?:to|of|for)\s[^.:\n]{0,80})?\s*(?:is|are)?'
    r'|\banswers?\s*(?:to\s[^.:\n]{0,80})?(?:is|are|was|should be|would be'
    r'|must be|=|(?=[:\uff1a]))'
    r'|\banswer(?=\s*(?:\$|\\\(|\\\[))'
    r'|^[#* \t]{0,20}(?:final )?answer[ \t*:]*$'
    r'|\u7b54\u6848\s*[\u662f\u4e3a\u70ba]?|^\u7b54(?=[:\uff1a])'
    r'|\u7b54\u3048\u306f|\u7b54\u3048(?=[:\uff1a])'
    r'|\u0627\u0644\u062c\u0648\u0627\u0628\s*(?:\u0647\u0648)?'
    r'|\b(?:r\u00e9ponse|respuesta|antwort|risposta|resposta'
    r'|odpowied\u017a|\u043e\u0442\u0432\u0435\u0442|cevap)'
    r'(?:\s+(?:finale?|final|correcta?))?'
    r'\s*(?:est|es|ist|\u00e8|\u00e9|to|(?=[:\uff1a])))'
    r'[\s*:\uff1a_#]*', re.IGNORECASE | re.MULTILINE)
_BOLD = re.compile(r'(?<!\*)\*\*(?![*\s])([^*\n]{1,200}?)\*\*(?!\*)')
MATHS = re.compile(
    r'\$\$(.+?)\$\$|(?<![\\$])\$([^$\n]+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]',
    re.DOTALL)
# Words that are labels of an answer, not an answer.
_LABEL = re.compile(
    r'(?:final\s+)?(?:answer|solution|result|note|step\b.*|conclusion)s?\s*:?',
    re.IGNORECASE)
# Longest tail in which a closing sentence is looked for.
_TAIL = 2000
_MAX = 200_000
# Boxes in boxes that are opened.
_MOST_BOXES = 8


def final_part(response: str) -> str:
  """A response behind its reasoning and before its end-of-text mark."""
  end = _END.search(response)
  text = response[:end.start()] if end else response
  for match in _THOUGHT.finditer(text):
    pass
  thought = [m.end() for m in _THOUGHT.finditer(text)]
  text = text[thought[-1]:] if thought else text
  opened = _OPEN_THOUGHT.search(text)
  return text[:opened.start()] if opened else text


def find(response: str) -> tuple[str, bool]:
  """The text of the final answer, and whether it was marked as such.

  In this order: the last `<answer>`, the last box (or boxes, if joined by
  commas, 'and' or 'or'), what stands behind the last `####`, behind 'the
  answer is', in bold; else the whole text.

  Args:
    response: a bare answer or a whole response.
  """
  text = final_part(response)
  if len(text) > _MAX:
    text = text[-_MAX:]
  tags = _TAG.findall(text)
  if tags:
    inner, marked = _stated(tags[-1])
    return (inner if marked else tags[-1]), True
  return _stated(text)


def _stated(text: str) -> tuple[str, bool]:
  boxed = _boxed(text)
  if boxed is not None:
    content, end = boxed
    if _CORRECTION.search(text, end):
      later, marked = _by_words(text[end:])
      if marked:
        return later, True
    return content, True
  return _by_words(text)


def _by_words(text: str) -> tuple[str, bool]:
  hashes = _HASHES.findall(text)
  if hashes:
    return hashes[-1], True
  said = None
  for said in _STATED.finditer(text):
    pass
  if said:
    answer = _first_statement(text[said.end():])
    if answer:
      return answer, True
  bold = [m[1].strip() for m in _BOLD.finditer(text)]
  bold = [b for b in bold if not _LABEL.fullmatch(b) and b[-1] not in ':\uff1a'
          and (b.isascii() or re.search('[0-9]', b))]
  if bold:
    return bold[-1], True
  return text, False


def _first_statement(text: str) -> str:
  """The first line that is not empty, without the sentences behind it."""
  text = text.lstrip(' \n\t:*}')
  if not text:
    return ''
  maths = MATHS.match(text)
  if maths and '\n' in maths[0]:
    return maths[0]
  line = next((line for line in text.split('\n')
               if re.search(r'\w', line)), '')
  # Not at the point of 'p.m.' or of '3.5'.
  sentence = re.split(
      r'(?<!\b[ap])(?<!\.[a-zA-Z])[.!](?=\s+[A-Z\u4e00-\u9fff\\(])|\u3002',
      line)[0]
  return sentence.strip(' *')


def _boxed(text: str) -> tuple[str, int] | None:
  """The content of the last box, or joined boxes, and where they end."""
  boxes = list(_boxes(text))
  if not boxes:
    return None
  begin, end, last = boxes[-1]
  contents = [last]
  for start, stop, content in reversed(boxes[:-1]):
    between = text[stop:begin]
    # Boxes that only follow each other are corrections, not a list.
    if (len(between) > 300 or not _JOINT.fullmatch(between)
        or between and not re.search(r',|;|\band\b|\bor\b', between)):
      break
    contents.append(content)
    begin = start
  if len(contents) == 1:
    content = _innermost(last)
    behind = _BEHIND.match(text, end)
    return content + (behind[1] if behind else ''), end
  return ', '.join(reversed(contents)), end


def _innermost(text: str) -> str:
  for _ in range(_MOST_BOXES):
    inner = next(_boxes(text), None)
    if inner is None:
      break
    text = inner[2]
  return text


def _boxes(text: str):
  """Start, end and content of the outer boxes, from the first to the last."""
  position = 0
  while match := _BOX.search(text, position):
    start = match.end()
    if start < len(text) and text[start] == '{':
      stop = closing(text, start)
      if stop is None:
        # Cut off: read to the end of the line, or give up on a long rest.
        rest = text[start + 1:].partition('\n')[0]
        if len(rest) < 500 and '\\boxed' not in rest:
          yield match.start(), len(text), rest.rstrip('$ .')
        return
      yield match.start(), stop + 1, text[start + 1:stop]
      position = stop + 1
    else:
      bare = re.compile(r'[-+]?[\w.,/]+').match(text, start)
      if bare:
        yield match.start(), bare.end(), bare[0].rstrip('.,')
      position = bare.end() if bare else start or match.end()


def closing(text: str, start: int) -> int | None:
  """Where the brace that opens at `start` closes; escaped ones do not count."""
  depth, position = 0, start
  for match in re.compile(r'\\.|[{}]', re.DOTALL).finditer(text, position):
    if match[0] == '{':
      depth += 1
    elif match[0] == '}':
      depth -= 1
      if not depth:
        return match.start()
  return None


def closing_statement(text: str) -> str:
  """What the last sentence of a text comes to: its last formula or number.

  Args:
    text: prose in which no answer is marked.

  Returns:
    A formula, the value behind the last '=', or the last number with the
    currency before and the percent sign behind it; '' where there is none.
  """
  tail = text[-_TAIL:].strip()
  maths = None
  for maths in MATHS.finditer(tail):
    pass
  if maths:
    inner = next(group for group in maths.groups() if group)
    rest = tail[maths.end():]
    if not re.search('[0-9]', rest):
      percent = re.match(r'\s*(?:%|percent\b|pct\b)', rest)
      unit = re.match(r'\s*(?:[ap]\.?m\.?(?![a-z]))', rest)
      return inner + (percent or unit or [''])[0]
  for sentence in reversed(re.split(r'(?<=[.!?\u3002])\s+|\n', tail)):
    found = [m[0].strip() for m in _LAST_NUMBER.finditer(sentence)]
    if found:
      # It costs $220 for 12 months: money is rather the answer than a count.
      money = [n for n in found if re.search(r'[$\u20ac\u00a3]', n)]
      return (money or found)[-1]
  return ''


_LAST_NUMBER = re.compile(
    r'(?:(?<![\w)\]}.])-)?(?:\\?[$\u20ac\u00a3]\s?)?'
    r'(?:[0-9]*\s?\\[dt]?frac\s?\{[^{}]*\}\s?\{[^{}]*\}'
    r'|[0-9]*\s?\\sqrt\s?\{[^{}]*\}'
    r'|[0-9]+(?:[.,\u00a0\u202f ][0-9]{3})*(?:[.,][0-9]+)?|\.[0-9]+)'
    r'(?:\s?/\s?[0-9]+)?(?:\s?\\?%|\s(?:percent|pct)\b|\s?\\?[$\u20ac\u00a3])?')
