"""What the terminal and a log file show."""
import io
import logging

import rich.console

from rlclip import evaluate, progress


def _console(terminal):
  return rich.console.Console(
      file=io.StringIO(), force_terminal=terminal, width=120,
      color_system=None, legacy_windows=False)


def test_a_log_gets_one_plain_line_a_step(caplog):
  caplog.set_level(logging.INFO, logger='rlclip')
  console = _console(terminal=False)
  with progress.bar(4, done=1, console=console) as update:
    update(2, {'reward': 0.25, 'pass@1': 0.5, 'kl': 9.0})
    update(3, {'reward': 0.5, 'clip_ratio/region_mean': 0.125})
  first, second = caplog.messages
  assert first.startswith('step 2/4  reward 0.250  pass@1 0.500  clipped -')
  # pass@1 is not measured at every step: the last one stays.
  assert second.startswith('step 3/4  reward 0.500  pass@1 0.500  clipped 0.1')
  assert second.endswith('0:00:00 left')
  assert console.file.getvalue() == ''


def test_a_terminal_gets_a_bar():
  console = _console(terminal=True)
  with progress.bar(4, console=console) as update:
    update(3, {'reward': 0.25, 'pass@1': 0.5, 'clip_ratio/region_mean': 0.1})
  shown = console.file.getvalue()
  assert '3/4' in shown
  assert 'reward 0.250  pass@1 0.500  clipped 0.100' in shown


def test_an_evaluation_shows_its_progress_on_a_terminal_alone():
  console = _console(terminal=True)
  with progress.problems(50, console=console) as update:
    update(20, 3000)
  assert 'problem 20/50' in console.file.getvalue()
  assert 'tokens/s ' in console.file.getvalue()
  with progress.problems(50, console=_console(terminal=False)) as update:
    assert update is None


def test_the_table_shows_intervals_and_change():
  console = _console(terminal=False)
  progress.show_comparison({'arithmetic pass@1': (
      evaluate.Estimate(0.25, 0.2, 0.3, 'wilson', 9),
      evaluate.Estimate(0.75, 0.7, 0.8, 'wilson', 9))},
      console=console)
  shown = console.file.getvalue()
  assert 'arithmetic pass@1' in shown and '95%' in shown
  assert '0.250 [0.200, 0.300]' in shown and '0.750 [0.700, 0.800]' in shown
  assert '+0.500' in shown


def test_a_completion_cannot_draw_on_the_terminal():
  console = _console(terminal=False)
  progress.show_samples([
      progress.Sample('1+1=', '[bold]2[/bold] [/x] \x1b[31mred\x07', 1.0),
      progress.Sample('2+2=', 'x', None)], console=console)
  shown = console.file.getvalue()
  assert '[bold]2[/bold] [/x] \\x1b[31mred\\x07' in shown
  assert '\x1b' not in shown and '\x07' not in shown
  assert 'reward 1' in shown and 'reward unscored' in shown


def test_text_of_any_script_stays_as_it_is():
  assert progress.printable('π ≈ 3\n\té 数') == 'π ≈ 3\n\té 数'


def test_long_paths_stay_on_one_line():
  console = _console(terminal=False)
  path = '/runs/' + 'x' * 200
  progress.show_paths({'metrics': path, 'tb': '[a]'}, console=console)
  assert console.file.getvalue() == f'metrics  {path}\ntb       [a]\n'
