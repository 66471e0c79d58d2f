"""Who may import whom, as docs/architecture.md has it: read off the source."""
import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_SECONDS = 120
ANY = None

# Part of rlclip: the parts it may import besides itself. A new part takes a
# stand here, or the test fails.
MAY_IMPORT = {
    'registry': set(),
    'types': set(),
    'divergences': {'registry'},
    # The registry: bounds, gates and levels are chosen by name.
    'trust_region': {'divergences', 'types', 'registry'},
    # The trust region: a loss is where an update rule's axes meet.
    'losses': {'divergences', 'trust_region', 'types', 'registry'},
    # A name of the literature is one point: a LossSpec made of the axes.
    'algorithms': {
        'advantages', 'losses', 'trust_region', 'divergences', 'registry'},
    # Other libraries' options are set against the axes, and named points.
    'translate': {'algorithms', 'losses', 'trust_region'},
    # Algorithms: certificates speak of every published rule.
    'oracle': {'algorithms', 'losses', 'trust_region', 'divergences', 'types',
               'registry'},
    'advantages': {'registry', 'types'},
    'rewards': {'registry', 'types'},
    'data': {'registry', 'types'},
    'models': {'divergences', 'types', 'registry'},
    'partitioning': {'types'},
    'distributed': set(),
    'machine_checks': set(),
    # The registry: kinds of inference servers are chosen by name.
    'sampler': {'distributed', 'models', 'types', 'registry'},
    'optimizers': {'types', 'registry'},
    'lora': {'types'},
    'learner': {'losses', 'lora', 'models', 'optimizers', 'partitioning',
                'types'},
    # A config is checked against what its names stand for.
    'config': {'algorithms', 'config_checks', 'losses', 'trust_region',
               'registry'},
    'config_checks': set(),
    'workdir': set(),
    'profiling': set(),
    'progress': {'evaluate'},
    'closing': {'evaluate', 'progress', 'workdir'},
    'metrics': {'types', 'workdir'},
    'checkpoint': {'types', 'workdir'},
    'reference': {'checkpoint', 'types'},
    'estimates': set(),
    # Answers by way of the same rollouts as training, and their statistics.
    'evaluate': {'estimates', 'rollouts', 'workdir', 'types', 'registry'},
    # Besides runs: descriptions of every axis, certificates among them.
    'analysis': {'evaluate', 'losses', 'data', 'metrics', 'workdir', 'types',
                 'registry', 'divergences', 'trust_region', 'algorithms',
                 'advantages', 'oracle'},
    # These tie the parts together.
    'rollouts': {'advantages', 'data', 'rewards', 'types', 'registry'},
    # Rollouts that wait for the learner, in memory and on disk.
    'pipeline': {'rollouts', 'types'},
    'pending': {'rollouts', 'types', 'workdir'},
    'assembly': ANY,
    'samplers': ANY,
    'benchmark': ANY,
    'diagnose': ANY,
    'dryrun': ANY,
    'export': ANY,
    'inspection': ANY,
    'warm_start': ANY,
    'train': ANY,
}

# Package: the parts and folders that may import it. Others never do.
ONLY_IN = {
    'flax': {'models'},
    # experiments: absl mains read --config through its config_flags.
    'ml_collections': {'config', 'configs', 'experiments'},
    'torch': set(),
    'tensorflow': set(),
}

# Reward workers and data loaders start in a moment and take no device.
WITHOUT_JAX = {
    'registry', 'types', 'rewards', 'data', 'advantages', 'estimates',
    'evaluate', 'rollouts', 'pending', 'workdir', 'progress'}
_JAX = {'jax', 'jaxlib', 'flax', 'optax', 'orbax', 'chex'}

# From, to: not even through other parts.
NEVER_REACHES = [
    ('sampler', 'learner'), ('learner', 'sampler'), ('losses', 'models'),
    ('losses', 'config'), ('models', 'losses')]


def _files():
  for folder in ('rlclip', 'experiments', 'configs'):
    yield from sorted((_ROOT / folder).rglob('*.py'))


def _part(path):
  """'losses' for rlclip/losses/reduce.py, 'types' for rlclip/types.py."""
  top, *rest = path.relative_to(_ROOT).with_suffix('').parts
  return rest[0] if top == 'rlclip' else top


def _imports(path):
  """(line, dotted name) of every import, also inside functions."""
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.Import):
      yield from ((node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      name = '.' * node.level + (node.module or '')
      # What comes from rlclip itself are its parts.
      yield from ((node.lineno, f'{name}.{alias.name}' if name == 'rlclip'
                   else name) for alias in node.names)


def _edges():
  for path in _files():
    for line, name in _imports(path):
      yield f'{path.relative_to(_ROOT)}:{line}', _part(path), name.split('.')


def _graph():
  graph = {part: set() for part in MAY_IMPORT}
  for _, part, name in _edges():
    if name[0] == 'rlclip' and len(name) > 1 and name[1] != part:
      graph.setdefault(part, set()).add(name[1])
  return graph


def test_parts_import_only_what_the_table_allows():
  wrong = []
  for where, part, name in _edges():
    if part in ('experiments', 'configs', '__init__') or name[0] != 'rlclip':
      continue
    allowed = MAY_IMPORT[part] if part in MAY_IMPORT else set()
    target = name[1] if len(name) > 1 else 'rlclip'
    if allowed is not ANY and target not in {part, *allowed}:
      wrong.append(f'{where}: {part} -> {target}')
  assert not wrong, '\n'.join(wrong)


def test_every_part_is_in_the_table():
  parts = {_part(path) for path in (_ROOT / 'rlclip').rglob('*.py')}
  assert not parts - {*MAY_IMPORT, '__init__'}


def test_nothing_imports_a_main_a_config_or_the_loop():
  wrong = [
      f'{where}: {".".join(name)}' for where, part, name in _edges()
      if name[0] in ('experiments', 'configs', 'tests') and part != name[0]
      or name[:2] == ['rlclip', 'train'] and part not in (
          'train', 'experiments')]
  assert not wrong, '\n'.join(wrong)


def test_imports_name_the_whole_path():
  wrong = [where for where, _, name in _edges() if name[0] == '']
  assert not wrong, '\n'.join(wrong)


def test_packages_stay_where_they_belong():
  wrong = [
      f'{where}: {".".join(name)}' for where, part, name in _edges()
      if part not in ONLY_IN.get(name[0], {part})
      or part in WITHOUT_JAX and name[0] in _JAX]
  assert not wrong, '\n'.join(wrong)


def test_parts_form_no_circle():
  graphlib.TopologicalSorter(_graph()).prepare()


@pytest.mark.parametrize('start, end', NEVER_REACHES)
def test_parts_stay_apart_through_others_too(start, end):
  graph = _graph()
  reached, left = set(), [start]
  while left:
    part = left.pop()
    new = graph.get(part, set()) - reached
    reached |= new
    left.extend(new)
  assert end not in reached


def _loads(modules, packages):
  """Those of the packages, or parts of rlclip, that an import pulls in."""
  code = (f'import sys, {modules}; '
          f'print(*sorted({packages!r} & set(sys.modules)))')
  run = subprocess.run(
      [sys.executable, '-c', code], capture_output=True, text=True,
      check=True, cwd=_ROOT, timeout=_SECONDS)
  return run.stdout.split()


def test_the_rules_load_no_model_sampler_or_data():
  parts = {f'rlclip.{part}' for part in MAY_IMPORT}
  rules = ['rlclip.algorithms', 'rlclip.losses']
  allowed = {'rlclip.advantages', 'rlclip.divergences', 'rlclip.registry',
             'rlclip.trust_region', 'rlclip.types', *rules}
  found = _loads(', '.join(rules), parts | {
      'jax', 'flax', 'optax', 'orbax', 'chex', 'transformers',
      'tensorflow_datasets', 'ml_collections'})
  assert set(found) == {'jax', *allowed}


@pytest.mark.parametrize('module', [
    'rlclip.rewards', 'rlclip.rewards.math', 'rlclip.rewards.code',
    'rlclip.data.tasks', 'rlclip.types', 'rlclip.workdir'])
def test_a_worker_loads_no_jax(module):
  assert not _loads(module, _JAX)
