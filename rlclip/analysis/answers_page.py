"""One HTML file to browse the answers of an evaluation in.

The file asks for nothing else, from the network or the disk, and carries out
nothing that a model wrote: texts are JSON in a script element that is no
program, with every `<` spelled \\u003c; the page's script puts them in place as
text nodes; and its content security policy knows that one script by its hash.
"""
import base64
import hashlib
import html
import importlib.resources
import json
import string
from typing import Any, Mapping, NamedTuple, Sequence

from rlclip import evaluate


class Sheet(NamedTuple):
  """One task on the page.

  Attributes:
    name: of the task.
    facts: what is told of it besides, such as the model and the step.
    measures: by name.
    answers: those of a problem together.
  """
  name: str
  facts: Mapping[str, Any]
  measures: Mapping[str, evaluate.Estimate]
  answers: Sequence[evaluate.Answer]


def render(sheets: Sequence[Sheet]) -> str:
  """The page.

  Args:
    sheets: one a task, in the order of the page's tabs.
  """
  style, script = _part('answers_page.css'), _part('answers_page.js')
  title = 'Answers: ' + ', '.join(sheet.name for sheet in sheets)
  return string.Template(_part('answers_page.html')).substitute(
      title=html.escape(title), style=style, style_hash=_hash(style),
      script=script, script_hash=_hash(script),
      data=_inert_json([_sheet(sheet) for sheet in sheets]))


def _sheet(sheet: Sheet) -> dict[str, Any]:
  problems: dict[str, dict[str, Any]] = {}
  for a in sheet.answers:
    problem = problems.setdefault(
        a.id, {'id': a.id, 'prompt': a.prompt, 'gold': a.gold, 'answers': []})
    problem['answers'].append({
        'text': a.completion, 'verdict': a.verdict, 'extracted': a.extracted,
        'format': a.format, 'finish': a.finish, 'tokens': a.num_tokens})
  return {
      'name': sheet.name,
      'facts': {key: str(value) for key, value in sheet.facts.items()},
      'measures': [{'name': name, **vars(estimate)}
                   for name, estimate in sheet.measures.items()],
      'problems': list(problems.values())}


def _inert_json(value: Any) -> str:
  """JSON in which no HTML parser finds a tag or a comment to act on."""
  text = json.dumps(value, ensure_ascii=True, allow_nan=False)
  for sign in '<>&':
    text = text.replace(sign, f'\\u{ord(sign):04x}')
  return text


def _part(name: str) -> str:
  return importlib.resources.files('rlclip.analysis').joinpath(
      name).read_text(encoding='utf-8')


def _hash(text: str) -> str:
  digest = hashlib.sha256(text.encode()).digest()
  return f'sha256-{base64.b64encode(digest).decode()}'
