"""The command, on a run that has not been trained."""
import json
import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[2]
_SECONDS = 240


def _run(module, *flags):
  return subprocess.run(
      [sys.executable, '-m', f'experiments.{module}', *flags], cwd=_ROOT,
      env={**os.environ, 'XLA_FLAGS': '', 'JAX_PLATFORMS': 'cpu'},
      capture_output=True, text=True, timeout=_SECONDS, check=False)


def test_a_run_is_evaluated_shown_and_written(tmp_path):
  config = ['--config=configs/tiny.py', f'--workdir={tmp_path}/run',
            '--config.evaluation.num_problems=4']
  trained = _run('train', *config, '--config.num_steps=0',
                 '--config.warm_start.num_steps=0')
  assert trained.returncode == 0, trained.stderr
  done = _run(
      'evaluate', *config, '--tasks=arithmetic', '--num_samples=3',
      '--config.evaluation.temperature=0.5', f'--output={tmp_path}/out')
  assert done.returncode == 0, done.stderr
  for name in ('pass@1', 'pass@2', 'pass@3', 'maj@3', 'truncated', 'format',
               'tokens', '95% interval', 'out/0.html'):
    assert name in done.stdout, name
  report = json.loads((tmp_path / 'out' / 'arithmetic' / '0.json').read_text())
  assert report['num_completions'] == 12
  assert report['settings']['num_samples'] == 3
  assert report['settings']['temperature'] == 0.5
  shown = _run('answers', f'{tmp_path}/out', f'--page={tmp_path}/p.html',
               f'--markdown={tmp_path}/t.md', '--title=Sums')
  assert shown.returncode == 0 and 'maj@3' in shown.stdout, shown.stderr
  assert (tmp_path / 't.md').read_text().startswith('# Sums\n\n|  | arith')
  # The training's own evaluation, of one sample a problem.
  assert _run('answers', f'{tmp_path}/run/eval',
              f'--page={tmp_path}/p.html').returncode == 0
  refused = _run('answers', f'{tmp_path}/run/tb')
  assert refused.returncode == 1 and 'found none' in refused.stderr
