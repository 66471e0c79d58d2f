"""Whether a program in a response passes its tests, run in a sandbox.

`rlclip.rewards.sandbox` says what the sandbox does and does not protect
against.
"""
import dataclasses
import json
import re
import textwrap
import time
from typing import Any, Mapping, Sequence

from rlclip import rewards
from rlclip.rewards import sandbox

# An open fence is a block that the end of the response has cut off.
_FENCE = re.compile(
    r'^[ \t]*```[ \t]*+(?P<language>[\w+.-]*+)[^\n]*+\n(?P<code>.*?)'
    r'(?:^[ \t]*```|\Z)', re.DOTALL | re.MULTILINE)
_PYTHON = ('python', 'python3', 'py', 'py3')
# Where a completion of a function goes on to something else.
_BEYOND = re.compile(r'\n(?=\S)')
_MOST_ENDS = 50


@dataclasses.dataclass(frozen=True)
class _Tests:
  """Tests in one of two forms; of the other, nothing is set.

  Attributes:
    source: assertions about functions.
    preamble: what HumanEval's prompt defines besides the function.
    prompt: what a completion continues.
    entry_point: the function, where it is named.
    cases: (input, output) of a program that reads and prints.
  """
  source: str = ''
  preamble: str = ''
  prompt: str = ''
  entry_point: str | None = None
  cases: Sequence[tuple[str, str]] = ()


def score(response: str, tests: Any, *,
          limits: sandbox.Limits = sandbox.Limits()) -> float | None:
  """1 where the program in a response passes all of its tests, else 0.

  The program is the last block fenced as Python, else the last fenced block,
  else all of the response, behind its reasoning. For HumanEval it may also
  continue the prompt. It runs in processes of its own that are gone when this
  returns, and cannot see or decide the verdict.

  Args:
    response: of the model.
    tests: one of: a row of HumanEval ('prompt', 'test', 'entry_point'; without
      its prompt, what the tests use of it is the program's); a row of MBPP
      ('test_list', 'test_setup_code'), or a list of lines of assertions; a row
      of a contest (its 'tests'), or a list of cases with 'input' and 'output',
      compared word by word; or any of them as JSON.
    limits: of which the wall time is for all tests together.

  Returns:
    1.0, 0.0, or None where the tests cannot be read.

  Raises:
    RuntimeError: the sandbox does not work.
  """
  found = _read_tests(tests)
  if found is None:
    return None
  programs = find_programs(
      response, prompt=found.prompt, entry_point=found.entry_point)
  if found.cases:
    return _score_cases(programs[0][1], found.cases, limits)
  passed = sandbox.check(
      programs, found.source, preamble=found.preamble,
      entry_point=found.entry_point, limits=limits).passed
  return None if passed is None else float(passed)


@rewards.register('code')
def code(prompt: str, completion: str, tokens, *, gold: Any = None,
         tests: Any = None, wall_s: float = sandbox.Limits().wall_s,
         cpu_s: float = sandbox.Limits().cpu_s, **fields) -> float | None:
  """`score` of a completion, by its example's field `tests`, else `gold`.

  The pool's deadline has to be longer than `wall_s`, or what is too slow is
  a failure of the reward and no 0.
  """
  del prompt, tokens, fields
  return score(completion, gold if tests is None else tests,
               limits=sandbox.Limits(wall_s=wall_s, cpu_s=cpu_s))


def find_programs(response: str, *, prompt: str = '',
                  entry_point: str | None = None
                  ) -> list[tuple[str, str]]:
  """What in a response may be the program, likeliest first.

  Nothing is parsed here, since that is a program's first attack: the sandbox
  takes the first whose second part is a program that defines the function.

  Args:
    response: of a model.
    prompt: the start of a program that it may continue.
    entry_point: the function that `prompt` begins; None where there is none.

  Returns:
    Pairs of two parts that make a program.
  """
  text = response.rpartition('</think>')[2]
  blocks = list(_FENCE.finditer(text))
  tagged = [b for b in blocks if b['language'].lower() in _PYTHON]
  if blocks:
    text = textwrap.dedent((tagged or blocks)[-1]['code'])
  if not prompt or not entry_point:
    return [('', text)]
  # With the prompt's imports and helpers, and its function defined anew.
  found = [(_finished(prompt), text), ('', prompt + text),
           ('', prompt + textwrap.indent(text, '    '))]
  # A completion may run on into text: the longest start that is a program.
  ends = [match.start() for match in _BEYOND.finditer(text)][:_MOST_ENDS]
  return found + [('', prompt + text[:end]) for end in reversed(ends)]


def _read_tests(tests: Any) -> _Tests | None:
  if isinstance(tests, str):
    try:
      tests = json.loads(tests)
    except (ValueError, RecursionError):  # JSON's error is a ValueError
      return None
  if isinstance(tests, Mapping):
    if 'test' in tests and 'entry_point' in tests:
      name, prompt = tests['entry_point'], tests.get('prompt') or ''
      return _Tests(
          source=f'{tests["test"]}\ncheck({name})\n', entry_point=name,
          preamble=_finished(prompt) if prompt else '', prompt=prompt)
    if 'test_list' in tests:
      lines = [tests.get('test_setup_code') or '', *tests['test_list']]
      return _assertions(lines) if tests['test_list'] else None
    return _read_tests(tests['tests']) if 'tests' in tests else None
  if not isinstance(tests, Sequence) or not tests:
    return None
  if all(isinstance(test, str) for test in tests):
    return _assertions(tests)
  if all(isinstance(test, Mapping) and {'input', 'output'} <= set(test)
         for test in tests):
    return _Tests(cases=[(test['input'], test['output']) for test in tests])
  return None


def _assertions(lines: Sequence[str]) -> _Tests:
  return _Tests(source='\n'.join(lines))


def _score_cases(program: str, cases: Sequence[tuple[str, str]],
                 limits: sandbox.Limits) -> float:
  deadline = time.monotonic() + limits.wall_s
  for given, expected in cases:
    left = deadline - time.monotonic()
    if left <= 0:
      return 0.0
    printed = sandbox.run(
        program, given, limits=dataclasses.replace(limits, wall_s=left))
    words = printed.output.decode('utf-8', 'replace').split()
    if printed.exit_code != 0 or words != expected.split():
      return 0.0
  return 1.0


def _finished(prompt: str) -> str:
  """A prompt that ends in a function's docstring, as a whole program."""
  return f'{prompt}\n    pass\n'
