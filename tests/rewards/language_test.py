"""Shares of letters, counted by hand."""
import pytest

from rlclip import rewards
from rlclip.rewards import language


@pytest.mark.parametrize('text, script', [
    ('What is 2 + 2?', 'LATIN'), ('二加二等于几？', 'HAN'),
    ('二たす二は何ですか', 'KANA'), ('2 더하기 2는?', 'HANGUL'),
    ('Сколько будет 2 + 2?', 'CYRILLIC'), ('2 + 2 = ?', ''),
    # Formulas and code are in no language.
    ('求 $\\alpha$ 与 `for x in range`', 'HAN'),
    ('Explain 水 in English', 'LATIN')])
def test_the_script_of_a_text(text, script):
  assert language.script_of(text) == script


@pytest.mark.parametrize('prompt, text, expected', [
    ('How many?', 'Four.', 1), ('How many?', '四', 0),
    ('How many?', 'is 四 or 四', 4 / 6), ('几个？', 'abc四', 1 / 4),
    ('几个？', '四 $abc$ \\boxed{4} ```abc```', 1), ('几个？', '4', 1),
    ('いくつですか', '四つです', 1), ('いくつですか', 'four四', 1 / 5),
    ('2 + 2', 'four', None)])
def test_the_share_of_letters(prompt, text, expected):
  got = rewards.get('language')(prompt, text, ())
  assert got == (None if expected is None else pytest.approx(expected))


def test_an_example_may_name_the_script():
  reward = rewards.get('language')
  assert reward('几个？', 'four', (), script='LATIN') == 1
  assert reward('How many?', 'four', (), script='HAN') == 0
