"""Which programs pass which tests."""
import json
import sys

import pytest

from rlclip.rewards import code, sandbox
from tests.rewards import code_references as references

pytestmark = pytest.mark.skipif(
    sys.platform != 'linux', reason='the sandbox is Linux\'s')
needs_data = pytest.mark.skipif(
    not references.DATA.exists(), reason=f'needs {references.DATA}')
LIMITS = sandbox.Limits(wall_s=30.0, cpu_s=10.0)
HUMANEVAL = {
    'prompt': (
        'import math\n\n\ndef helper(x):\n  return x + 1\n\n\n'
        'def area(r):\n    """Area of a circle of radius r."""\n'),
    'test': (
        'def check(candidate):\n  assert candidate(0) == 0\n'
        '  assert abs(candidate(1) - math.pi) < 1e-9\n'
        '  assert helper(1) == 2\n'),
    'entry_point': 'area'}
BODY = '    return math.pi * r * r\n'


@pytest.mark.parametrize('response, expected', [
    (BODY, 1), (BODY.strip(), 1), (f'```python\n{BODY}```', 1),
    (BODY + '\n\nprint(area(1)\nThis is it.', 1),
    ('```python\ndef area(r):\n  return math.pi * r ** 2\n```', 1),
    ('def area(r):\n  return helper(r) * 0 + math.pi * r ** 2', 1),
    ('area = lambda r: math.pi * r * r', 1),
    # The helper that the tests use is the prompt's, whatever a program says.
    ('def helper(x):\n  return 0\ndef area(r):\n  return math.pi * r * r', 1),
    ('    return 0\n', 0), ('', 0), ('    return math.pi * r * r +\n', 0),
    ('def volume(r):\n  return math.pi * r ** 2', 0),
    (f'```python\ndef area(r): return 3\n```\nNo:\n```python\n{BODY}```', 1),
    ('<think>```python\n' + BODY + '```</think>It is hard.', 0),
    ('```python\n' + BODY + '```\nIt prints\n```\n3.14\n```', 1)])
def test_a_completion_or_a_program(response, expected):
  assert code.score(response, HUMANEVAL) == expected


SUM = 'def add(a, b):\n  return a + b\n'
NODE = ('class Node:\n  def __init__(self, value):\n    self.value = value\n'
        '    self.next = None\ndef total(node):\n'
        '  return node.value + total(node.next) if node else 0\n')


@pytest.mark.parametrize('program, tests, expected', [
    (SUM, ['assert add(1, 2) == 3', 'assert add("a", "b") == "ab"'], 1),
    (SUM, ['assert add(1, 2) == 3', 'assert add(1, 1) == 3'], 0),
    (SUM, json.dumps({'test_list': ['assert add(1, 2) == 3']}), 1),
    # Objects of the program's own classes travel as themselves.
    (NODE, {'test_setup_code': 'root = Node(1)\nroot.next = Node(2)',
            'test_list': ['assert total(root) == 3',
                          'assert root.next.value == 2']}, 1),
    # A name of Python's is the program's where the tests call nothing else.
    ('def sum(a, b):\n  return a * b', ['assert sum(2, 3) == 6'], 1),
    ('def g(x):\n  return set(x)', ['assert set(g([1, 1])) == {1}'], 1),
    # What a function does to its argument is seen.
    ('def grow(x):\n  x.append(1)', ['x = []\ngrow(x)\nassert x == [1]'], 1),
    ('def f(x):\n  raise ValueError(x)', [
        'try:\n  f(1)\n  assert False\nexcept ValueError: pass'], 1),
    ('def f(x):\n  return 2**9999 * x', ['assert f(3) == 3 * 2**9999'], 1),
    ('def f(x):\n  return {(1, 2): {3.5}, "a": [None, True, 1j, b"x"]}', [
        'assert f(0) == {(1, 2): {3.5}, "a": [None, True, 1j, b"x"]}'], 1),
    ('def f(x):\n  return (i for i in x)', ['assert list(f([1])) == [1]'], 1),
    ('def f(x):\n  return [1, 2]', ['assert f(0) == (1, 2)'], 0),
    ('def f(x):\n  return float("nan")', ['assert f(0) == f(0)'], 0),
    ('if __name__ == "__main__":\n  exit()\n' + SUM, ['assert add(1, 2) == 3'],
     1),
    (SUM, ['assert add(1, 2 == 3'], None), (SUM, [], None), (SUM, None, None),
    (SUM, 'no tests', None), (SUM, {'test_list': []}, None), (SUM, 7, None),
    (SUM, [{'input': '1'}], None)])
def test_assertions(program, tests, expected):
  assert code.score(f'Here:\n```python\n{program}\n```', tests) == expected


CASES = [{'input': '1 2\n', 'output': '3\n'}, {'input': '4 5', 'output': '9'}]


@pytest.mark.parametrize('program, expected', [
    ('print(sum(map(int, input().split())))', 1),
    ('import sys\nprint(" ", sum(map(int, sys.stdin.read().split())), "\\n")',
     1),
    ('import sys\nsys.stdout.write(str(sum(map(int, open(0).read().split()))))',
     1),
    ('import threading\ndef main():\n  print(sum(map(int, input().split())))\n'
     'if __name__ == "__main__":\n  threading.Thread(target=main).start()', 1),
    ('print(sum(map(int, input().split())))\nexit(0)', 1),
    ('print(sum(map(int, input().split())))\nexit(1)', 0),
    ('print(sum(map(int, input().split())))\n1 / 0', 0), ('print(3)', 0),
    ('print(sum(map(int, input().split())), 9)', 0), ('', 0),
    ('import os\nos.write(1, b"3" * (32 << 20))', 0)])
def test_programs_that_read_and_print(program, expected):
  assert code.score(program, {'tests': CASES}) == expected


@needs_data
def test_references_pass():
  # All of them: python -m tests.rewards.code_references.
  rows = [*list(references.humaneval())[3::10], *list(references.mbpp())[4::50]]
  # By their oddities: trees, a builtin's name, other modules, an own class.
  odd = {'MBPP/126', 'MBPP/367', 'MBPP/596', 'MBPP/601', 'MBPP/912',
         'HumanEval/32', 'HumanEval/38', 'HumanEval/50'}
  rows += [row for row in (*references.humaneval(), *references.mbpp())
           if row[0] in odd]
  wrong = [name for name, program, tests in rows if code.score(
      references.fenced(program), tests, limits=LIMITS) != 1.0]
  assert not wrong and len(rows) >= 40


@needs_data
def test_a_swapped_operator_fails():
  rows = list(references.humaneval())[::8]
  mutants = [
      (mutant, tests) for _, program, tests in rows for mutant in
      references.spread(references.mutants(program, tests['entry_point']), 1)]
  failed = [code.score(references.fenced(mutant), tests, limits=LIMITS) == 0.0
            for mutant, tests in mutants]
  # At least: a mutant may do the same, or what the tests do not look at.
  assert sum(failed) >= 0.9 * len(failed) and len(failed) >= 12


def test_the_mutator_swaps_one_operator_of_the_function():
  source = 'def g(x):\n  return x + 1\ndef f(x):\n  return -x < 2 and x in g(x)'
  bodies = [ast_body.splitlines()[-1].strip()
            for ast_body in references.mutants(source, 'f')]
  assert sorted(bodies) == [
      'return +x < 2 and x in g(x)', 'return -x < 2 and x not in g(x)',
      'return -x < 2 or x in g(x)', 'return -x >= 2 and x in g(x)']
