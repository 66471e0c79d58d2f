"""The report: totals, verdicts, advice, JSON, the table of papers, the main."""
import json
import pathlib
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
import rich.console

from configs import default
from rlclip.dryrun import advice, chips, hlo, papers, report, running
from tests.dryrun.counting_test import make_plan

_ROOT = pathlib.Path(__file__).parents[2]
GIB = chips.GIB


def program(**sizes):
  return report.Program(**{k: v * GIB for k, v in sizes.items()})


def make(plan, programs):
  return report.make(plan, programs, config='c.py', model='m')


def test_a_phase_holds_what_lies_beside_it_too():
  plan = make_plan(rollout__num_prompts=8)
  made = make(plan, {'update': program(arguments=1, outputs=2, temporaries=3),
                     'decode': program(arguments=1)})
  total = {line.name: line.total for line in made.lines}
  held = made.resident
  sampler = held['sampler weights'] + held["completions' cache"] + (
      held["prompts' cache"])
  assert total['update'] == 6 * GIB + sampler
  # The learner's state lies there while the sampler draws.
  assert total['decode'] == GIB + sum(held.values()) - sampler
  assert total['prefill'] == 0  # not compiled
  assert made.peak == total['update']
  assert made.fits


@pytest.mark.parametrize('programs, fits', [
    ({}, True), ({'update': program(arguments=15)}, True),
    ({'update': program(arguments=15.9)}, False),  # 16 of which 15.74 usable
    ({'update': program(needed=3)}, False)])
def test_the_verdict(programs, fits):
  made = make(make_plan(rollout__num_prompts=8), programs)
  assert made.fits is fits
  assert made.analysis_only is not bool(programs)


def test_the_roofline_is_the_slowest_of_three():
  plan = make_plan(rollout__num_prompts=8)
  sent = hlo.Collective('all-reduce', 10 ** 12, 4, 2, True)
  lines = {line.name: line for line in make(plan, {
      'update': report.Program(collectives=(sent,))}).lines}
  update = lines['update']
  # 2 times 2 x 3/4 of 1e12 bytes at 200 GB/s.
  assert (update.bound, update.seconds) == ('links', pytest.approx(15.0))
  assert lines['decode'].seconds >= max(
      lines['decode'].flops / 197e12, lines['decode'].hbm / 819e9)


def test_tokens_a_second_are_a_steps_over_its_roofline():
  made = make(make_plan(rollout__num_prompts=8), {})
  assert made.step_seconds == pytest.approx(
      sum(line.calls * line.seconds for line in made.lines))
  assert made.tokens_per_second * made.step_seconds == pytest.approx(
      8 * 8 * 64)
  assert 0 < made.mfu < 1 and 0 < made.update_mfu < 1


def test_advice_names_what_saves_most():
  # Logits of 4,096 tokens and 8 rows of activations a device, no remat.
  plan = make_plan(rollout__num_prompts=32, rollout__completion_length=448)
  found = advice.best(plan)
  assert len(found) == 3
  assert [a.saved for a in found] == sorted(
      (a.saved for a in found), reverse=True)
  assert '--config.learner.num_micro_batches=4' in [a.change for a in found]
  assert all(a.fits for a in found)


def test_advice_leaves_out_what_the_config_refuses():
  # One prompt a mini-batch: no micro-batches to cut it into.
  plan = make_plan('v5e:1x1', rollout__num_prompts=1)
  assert not [a for a in advice.best(plan, 9) if 'micro' in a.change]


def test_a_report_survives_json_and_is_shown():
  made = make(make_plan(rollout__num_prompts=8), {'update': report.Program(
      arguments=GIB, collectives=(hlo.Collective(
          'all-gather', 10 ** 6, 4, 7, False),))})
  found = json.loads(json.dumps(report.as_dict(made)))
  assert found['peak'] == made.peak
  assert found['lines'][-1]['program']['collectives'][0]['kind'] == (
      'all-gather')
  console = rich.console.Console(record=True, width=120)
  report.show(made, console)
  text = console.export_text()
  assert 'fits: ' in text and 'all-gather' in text and '7 (a round)' in text


def arithmetic(**settings):
  config = default.get_config()
  config.update_from_flattened_dict(settings)
  return config


def test_arithmetic_alone_needs_no_libtpu():
  made = running.run(arithmetic(), 'h100:1', backend='gpu')
  assert made.analysis_only and made.fits
  assert made.num_devices == 1


def _four(_):
  return [None] * 4, [None] * 4


def test_a_slice_of_another_backend_is_refused():
  with pytest.raises(ValueError, match='--backend=gpu'):
    running.run(arithmetic(), 'h100:8')


def test_what_cannot_fit_is_not_compiled(monkeypatch):
  def compiled(*_):
    raise AssertionError('compiled')
  monkeypatch.setattr(running.compilation, 'devices', _four)
  monkeypatch.setattr(running.compilation, 'functions', compiled)
  made = running.run(
      arithmetic(**{'model.architecture.hidden_size': 1 << 15,
                    'model.architecture.num_layers': 64}), 'v5e:2x2')
  assert not made.fits and made.analysis_only


def test_a_call_goes_on_where_the_last_one_ended(monkeypatch, tmp_path):
  sent = hlo.Collective('all-reduce', 10, 4, 2, True)
  compiled = []

  def compile_one(lower):
    compiled.append(lower)
    if lower == 'second' and len(compiled) == 2:
      raise KeyboardInterrupt
    return report.Program(arguments=GIB, collectives=(sent,))
  monkeypatch.setattr(running.compilation, 'devices', _four)
  monkeypatch.setattr(running.compilation, 'functions', lambda *_: [
      ('decode', 'first'), ('update', 'second')])
  monkeypatch.setattr(running.compilation, 'compile_one', compile_one)
  part = tmp_path / 'part.json'
  with pytest.raises(KeyboardInterrupt):
    running.run(arithmetic(), 'v5e:2x2', part=part)
  made = running.run(arithmetic(), 'v5e:2x2', part=part)
  assert compiled == ['first', 'second', 'second']
  assert made.lines[1].program.collectives == (sent,)
  assert made.lines[-1].program.total == GIB


class Row(NamedTuple):
  name: str
  config: Any
  topology: str


def test_the_table_of_papers_keeps_what_was_run(tmp_path, monkeypatch):
  runs = []

  def run(config, topology, *, name, config_json, part=None,
          analysis_only=False):
    del config, config_json, part
    if not analysis_only:
      runs.append(name)
    programs = {} if analysis_only else {'update': program(arguments=1)}
    return report.make(make_plan(topology, rollout__num_prompts=8), programs,
                       config=name, model='m')
  monkeypatch.setattr(running, 'run', run)
  rows = [Row('configs/papers/x.py:a', arithmetic(), 'v5e:2x2'),
          Row('configs/papers/x.py:b', arithmetic(), 'v5e:2x2')]
  output = tmp_path / 'papers.md'
  papers.write(rows, output, only=['x.py:a'])
  text = output.read_text(encoding='utf-8')
  assert '| `configs/papers/x.py:a` | v5e:2x2 | 1.' in text
  done, left = text.split('## Not compiled yet')
  assert 'x.py:a' in done and 'x.py:b' in left
  papers.write(rows, output)
  assert runs == ['configs/papers/x.py:a', 'configs/papers/x.py:b']
  assert 'Not compiled' not in output.read_text(encoding='utf-8')


def _main(*args):
  return subprocess.run(
      [sys.executable, '-m', 'experiments.dryrun', *args], cwd=_ROOT,
      capture_output=True, text=True, check=False, timeout=300)


def test_the_main_exits_with_1_where_a_config_does_not_fit(tmp_path):
  found = _main('--config=configs/tiny.py', '--topology=h100:1',
                '--backend=gpu', f'--json={tmp_path}/r.json')
  assert found.returncode == 0, found.stderr
  assert 'analysis alone' in found.stdout
  assert json.loads((tmp_path / 'r.json').read_text())['fits']
  found = _main('--config=configs/tiny.py', '--topology=h100:1',
                '--backend=gpu', '--config.model.architecture.hidden_size='
                '65536', '--config.model.architecture.num_layers=400')
  assert found.returncode == 1
  assert 'DOES NOT FIT' in found.stdout
