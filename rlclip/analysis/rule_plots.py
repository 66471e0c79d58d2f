"""Loss and gradient of a rule against the ratio, as a PNG."""
import math
import os
import pathlib

import numpy as np

from rlclip.analysis import gradient_map, rule_sections, rule_tables, rules

# Okabe and Ito's blue, vermilion and black: apart for all kinds of sight, and
# the styles are apart without colors.
_STYLES = {1.0: ('#0072B2', '-'), -1.0: ('#D55E00', '--'), 0.0: ('black', ':')}
_POINTS = 1600
_COARSE = (.03, .1, .3, 1, 3, 10, 30)
_FINE = (.1, .15, .2, .3, .4, .5, .6, .8, 1, 1.2, 1.5, 2, 3, 4, 5, 6)


def draw(rule: rules.Rule, path: str | os.PathLike) -> None:
  """Draws loss and gradient for A = +1 and -1, a penalty also alone (A = 0).

  Where the gradient is zero its line lies on the axis and is thick; the ends
  of the interval are marked.

  Args:
    rule: what is drawn.
    path: of the PNG; its folder is made.

  Raises:
    ValueError: for a rule that is no function of a ratio.
  """
  if rule.spec is None:
    raise ValueError(
        f'{rule.kind}:{rule.name} is no function of a ratio, so that there is '
        f'nothing to draw. Draw an algorithm that has it.')
  import matplotlib
  matplotlib.use('agg')
  from matplotlib import pyplot
  symbol, setting = rule_tables.variable(rule)
  marks = _marks(rule)
  low, high = _window(marks, setting)
  ratios = np.geomspace(low, high, _POINTS)
  figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout='constrained')
  for advantage in rule_tables.advantages_of(rule):
    curve = gradient_map.curve(rule.spec, advantage, ratios, setting)
    color, style = _STYLES[advantage]
    for axis, values in zip(axes, (curve.losses, curve.gradients)):
      # A jump is a gap, not a slope.
      jumps = np.abs(np.diff(values)) > 0.02 * np.ptp(values)
      axis.plot(ratios, np.where(np.append(jumps, False), np.nan, values),
                style, color=color, lw=1.8,
                label=f'A = {rule_tables.signed(advantage)}')
    zero = np.where(curve.gradients == 0, 0.0, np.nan)
    axes[1].plot(ratios, zero, color=color, lw=5, alpha=0.35,
                 solid_capstyle='butt')
  for axis, title in zip(axes, ('loss', 'gradient of the loss by log p')):
    for mark in marks:
      if low < mark < high:
        axis.axvline(mark, color='0.6', lw=0.8, zorder=0)
    axis.axhline(0, color='0.8', lw=0.8, zorder=0)
    axis.set(title=title, xlabel=f'{symbol} = ' + (
        'new / old' if symbol == 'w' else 'old / behavior'))
    _scale(axis, low, high)
    axis.grid(alpha=0.2)
  axes[0].legend()
  # An end found twice differs in its last digit.
  where = ', '.join(dict.fromkeys(map(rule_sections.ratio_text, marks)))
  figure.suptitle(f'{rule.name} ({rule.kind})' + (
      f', marks at {symbol} = {where}' if marks else ''))
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=120)
  pyplot.close(figure)


def _marks(rule):
  """Ratios at which the sign of a gradient changes, and the interval's ends."""
  symbol, setting = rule_tables.variable(rule)
  marks = {span.low for a in rule_tables.advantages_of(rule)
           for span in gradient_map.spans(rule.spec, a, setting)[1:]}
  if symbol == 'w':
    marks.update(rule_tables.ends_of(rule.spec))
  return sorted(m for m in marks if 0 < m < math.inf and abs(m - 1) > 1e-9)


def _window(marks, setting):
  """Beyond the farthest mark: four times as far, or e times."""
  far = max((abs(math.log(mark)) for mark in marks), default=1.0)
  far = min(4 * far, far + 1, math.log(gradient_map.LIMIT))
  high = math.exp(far)
  if setting.moves == 'policy':
    high = min(high, (1 - 1e-9) / setting.probability)
  return math.exp(-far), high


def _scale(axis, low, high):
  """Linear near 1, where a log axis has no ticks; else logarithmic."""
  axis.set_xlim(low, high)
  if high / low < 1.5:
    axis.ticklabel_format(axis='x', useOffset=False)
    return
  axis.set_xscale('log')
  ticks = _COARSE if high / low > 50 else _FINE
  ticks = [tick for tick in ticks if low <= tick <= high]
  axis.set_xticks(ticks, [f'{tick:g}' for tick in ticks])
  axis.minorticks_off()
