"""Scores all reference solutions, and mutants of them.

  python -m tests.rewards.code_references [--mutants=K] [--workers=N]

Prints the share of references that pass, that of mutants that fail, and the
mutants that pass, with what is mutated: some do the same as the reference, and
others the published tests do not notice. Those are run with their tests by a
plain interpreter as well, which has to say the same.
"""
import argparse
import ast
import concurrent.futures
import copy
import gzip
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Iterator

from rlclip.rewards import code, sandbox

DATA = pathlib.Path(os.environ.get(
    'RLCLIP_DATA', pathlib.Path(__file__).parents[3] / 'shared' / 'data'))

_SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitXor: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt,
    ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.USub: ast.UAdd}


def humaneval() -> Iterator[tuple[str, str, dict]]:
  """(name, whole program, tests) of every problem."""
  path = DATA / 'humaneval' / 'HumanEval.jsonl.gz'
  with gzip.open(path, 'rt', encoding='utf-8') as file:
    for row in map(json.loads, file):
      yield (row['task_id'], row['prompt'] + row['canonical_solution'],
             {key: row[key] for key in ('prompt', 'test', 'entry_point')})


def mbpp() -> Iterator[tuple[str, str, dict]]:
  """(name, program, tests) of every problem."""
  with open(DATA / 'mbpp' / 'mbpp.jsonl', encoding='utf-8') as file:
    for row in map(json.loads, file):
      yield (f'MBPP/{row["task_id"]}', row['code'],
             {key: row[key] for key in ('test_list', 'test_setup_code')})


def mutants(source: str, function: str | None = None) -> list[str]:
  """The program with one operator swapped, for every operator.

  Args:
    source: a program.
    function: mutate this one only; None mutates all.
  """
  tree = ast.parse(source)

  def places(root):
    """(node, field, index) of every operator, in a fixed order."""
    for top in root.body:
      if function and getattr(top, 'name', None) != function:
        continue
      for node in ast.walk(top):
        if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp,
                             ast.UnaryOp)) and type(node.op) in _SWAPS:
          yield node, None
        elif isinstance(node, ast.Compare):
          yield from ((node, i) for i, op in enumerate(node.ops)
                      if type(op) in _SWAPS)

  made = []
  for number in range(len(list(places(tree)))):
    changed = copy.deepcopy(tree)
    node, index = list(places(changed))[number]
    if index is None:
      node.op = _SWAPS[type(node.op)]()
    else:
      node.ops[index] = _SWAPS[type(node.ops[index])]()
    made.append(ast.unparse(changed))
  return made


def spread(items: list, count: int) -> list:
  """At most `count` of the items, evenly spread."""
  if len(items) <= count:
    return items
  return [items[i * len(items) // count] for i in range(count)]


def passes_plainly(program: str, tests: dict) -> bool:
  """Whether a program that can be trusted passes in one process with tests."""
  lines = tests.get('test_list') or [
      tests['test'], f'check({tests["entry_point"]})']
  source = '\n'.join([program, tests.get('test_setup_code', ''), *lines])
  return not subprocess.run(
      [sys.executable, '-c', source], capture_output=True, timeout=60,
      check=False).returncode


def difference(program: str, mutant: str) -> str:
  """The changed line, before and after."""
  before, after = (ast.unparse(ast.parse(s)).splitlines()
                   for s in (program, mutant))
  return ' -> '.join(
      line.strip() for pair in zip(before, after) if pair[0] != pair[1]
      for line in pair)


def fenced(program: str) -> str:
  return f'```python\n{program}\n```'


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument('--mutants', type=int, default=1, help='of a program')
  parser.add_argument('--workers', type=int, default=2)
  options = parser.parse_args()
  limits = sandbox.Limits(wall_s=60.0, cpu_s=20.0)
  print(sandbox.isolation())
  def scored(pairs):
    with concurrent.futures.ThreadPoolExecutor(options.workers) as threads:
      return list(threads.map(
          lambda p: code.score(fenced(p[0]), p[1], limits=limits), pairs))

  for label, rows in (('HumanEval', list(humaneval())), ('MBPP', list(mbpp()))):
    start = time.monotonic()
    found = scored([(program, tests) for _, program, tests in rows])
    seconds = time.monotonic() - start
    print(f'{label}: {sum(x == 1 for x in found)} of {len(rows)} references '
          f'pass, {len(rows) / seconds:.1f} programs/s')
    print(*(f'  {row[0]} {x}' for row, x in zip(rows, found) if x != 1),
          sep='\n')
    changed = [
        (name, mutant, tests) for name, program, tests in rows
        for mutant in spread(
            mutants(program, tests.get('entry_point')), options.mutants)]
    found = scored([(mutant, tests) for _, mutant, tests in changed])
    passed = [row for row, x in zip(changed, found) if x != 0]
    print(f'{label}: {len(changed) - len(passed)} of {len(changed)} mutants '
          f'of {len({name for name, *_ in changed})} programs fail')
    sources = {name: program for name, program, _ in rows}
    for name, mutant, tests in passed:
      agrees = 'also' if passes_plainly(mutant, tests) else 'NOT'
      print(f'  {name} passes, {agrees} by itself: '
            f'{difference(sources[name], mutant)}')


if __name__ == '__main__':
  main()
