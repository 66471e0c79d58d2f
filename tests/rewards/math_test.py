r"""Verdicts of the math reward, one row a rule, right and wrong ones."""
import pytest

from rlclip.rewards import math
from rlclip.rewards.math import extract

# Rule: pairs of a reference and an answer that is the same.
_SAME = {
    'finding': [
        ('42', '#### 42.'), ('42', '#### 1. no\n#### 42 apples'),
        ('24', '\\boxed{25}. Wait, that is wrong: \\boxed{24}'),
        ('24', '<think>\\boxed{3}</think> The answer is 24.'),
        ('7', '<answer>7</answer>'), ('8', '**Final Answer:** 8'),
        ('12', 'Out of 30 balls, 12 are red. So there are 12 left.'),
        ('1, 2', '\\boxed{1} and \\boxed{2}'), ('12', '\\boxed{12}<|im_end|>'),
        ('20%', 'which is $\\boxed{20}$ percent.'), ('5', '\\boxed 5'),
        ('x>3', 'We find that $x \\gt 3$.'), ('7', '\\boxed{\\boxed{7}}'),
        ('12', '\\text{The answer is } 12'), ('(7,6)', 'It is $(7, 6)$.')],
    'languages': [
        ('12', '答えは12です。'), ('3.5', 'Die Antwort ist 3,5.'),
        ('18', '따라서 답은 18입니다.'), ('12', 'الجواب هو ١٢'),
        ('7', 'Ответ: 7'), ('C', '正确答案是C'), ('12345', '１２３４５'),
        ('1000.99', '1000,99')],
    'number': [
        ('42', '$42$'), ('1,234', '\\boxed{1234}'), ('1234', '1{,}234'),
        ('1234', '1,\\!234'), ('1234567', '1 234 567'), ('0.5', '.5'),
        ('$42', '42'), ('7', '007'), ('0', '-0'), ('6e23', '6\\times10^{23}'),
        ('-7', '−7'), ('12', 'twelve'), ('1500000', '1.5 million'),
        ('4:30 p.m.', '4:30 PM'), ('12', '12^{\\text{th}}')],
    'fraction': [
        ('\\frac{1}{2}', '0.5'), ('1/2', '\\frac12'), ('1/2', '½'),
        ('-\\frac{5}{2}', '-2\\frac12'), ('7/2', '3 1/2'), ('1/2', 'half'),
        ('3/4', '{3 \\over 4}'), ('1/6', '0.1\\overline{6}')],
    'decimals': [
        ('1/3', '0.333333333'), ('\\pi', '3.14159265'),
        ('0.143', '\\frac17'), ('41.4\\%', '\\sqrt2-1'), ('1.41', '\\sqrt2')],
    'percent': [
        ('10\\%', '10'), ('10\\%', '0.1'), ('10\\%', '1/10'), ('10', '10\\%'),
        ('0.3', '30%')],
    'angle': [
        ('30^\\circ', '30'), ('60^\\circ', '\\pi/3'), ('\\pi/4', '45 degrees'),
        ('\\sqrt3', '\\tan 60^\\circ'), ('2', '\\frac{360}{\\pi}^\\circ')],
    'unit': [
        ('5 \\text{ km}', '5000 m'), ('5 km', '5'), ('5', '5 \\text{ cm}^2'),
        ('100 cm^2', '0.01 m^2'), ('5 \\text{ m/s}', '18 km/h'),
        ('\\$5', '500 cents'), ('90 minutes', '1.5 hours'),
        ('100\\text{ g}', '0.1\\text{ kg}')],
    'set': [
        ('3 \\text{ or } 5', '5, 3'), ('\\{1,2\\}', '2, 1'),
        ('\\pm 2', '2; -2'), ('1\\pm\\sqrt5', '1-\\sqrt5, 1+\\sqrt5'),
        ('(1,2),(3,4)', '(3,4) \\text{ and } (1,2)'), ('\\{1,2\\}', '{1,2}')],
    'assignment': [
        ('x=5', '5'), ('5', 'x=5'), ('x=1, y=2', 'y=2, x=1'),
        ('x=1,y=2', '1,2'), ('(1,2)', 'x=1, y=2'), ('12', 'n=3\\times4=12'),
        ('2x+1', 'y=2x+1'), ('x=2 \\text{ or } x=3', '3, 2'),
        ('1/3', 'x = 1/3 \\approx 0.333'), ('1, 3', 'Least: 1, most: 3')],
    'names': [
        ('f(x)=2x', 'f(t)=2t'), ('k\\pi', 'n\\pi'),
        ('(1-t, t)', '(1-s, s) \\text{ for some integer } s')],
    'interval': [
        ('[0,\\infty)', 'x \\ge 0'), ('(0,1)', ']0,1['),
        ('[1,3]', '[1,2]\\cup[2,3]'), ('(-1,1)', '|x|<1'),
        ('(-1,1)', 'x^2<1'),
        ('\\{x | x \\ne 2\\}', '\\mathbb{R}\\setminus\\{2\\}'),
        ('\\emptyset', '\\{\\}'), ('a \\le 0', '(-\\infty,0]')],
    'relation': [
        ('x+y=1', '2x+2y=2'), ('x>3', '3<x'), ('-x<-3', 'x>3'),
        ('a<b<c', 'c>b>a'), ('2x+4y=3', 'y=-\\frac12x+\\frac34')],
    'tuple': [
        ('(1,2)', '\\begin{pmatrix}1\\\\2\\end{pmatrix}'),
        ('(1,2)', '\\langle 1,2\\rangle'), ('(2,60^\\circ)', '(2,\\pi/3)')],
    'matrix': [
        ('\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}',
         '\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}'),
        ('\\begin{pmatrix}1\\\\2\\end{pmatrix}',
         '\\frac12\\begin{pmatrix}2\\\\4\\end{pmatrix}')],
    'ratio': [('2:3', '4:6'), ('2:3', '2/3'), ('1:2:3', '10:20:30')],
    'closed form': [
        ('2\\sqrt{3}', '$\\sqrt{12}$'), ('-2', '\\sqrt[3]{-8}'), ('-1', 'i^2'),
        ('\\sqrt2+\\sqrt3', '\\sqrt{5+2\\sqrt6}'), ('\\log_2 8', '3'),
        ('\\frac{\\sqrt5-1}{4}', '\\sin 18^\\circ'), ('1026', '1000+(26)'),
        ('26000', '1000(26)'), ('3', '\\lfloor 3.7 \\rfloor')],
    'expression': [
        ('x^2-1', '(x-1)(x+1)'), ('\\sqrt{x^2}', '|x|'),
        ('\\sec^2 y', '\\tan^2(y)+1'), ('n(n+1)/2', '\\binom{n+1}{2}'),
        ('2x', '\\ln x^2 \\cdot \\frac{x}{\\ln |x|}'),
        ('\\frac{n(n+1)}{2}', '\\sum_{k=1}^{n} k'), ('2ab', '2ba')],
    'size': [
        ('9^{9^{9^9}}', '\\boxed{9^{9^{9^9}}}'), ('100!', '99! \\cdot 100'),
        ('10^{100}', '10^{99} \\cdot 10'), ('2005', '\\frac{2005!}{2004!}')],
    'choice': [
        ('B', '\\text{(B)}'), ('B', 'The answer is B.'), ('B', '(B) 12'),
        ('B', 'b'), ('D', 'It cannot be A, therefore it is D'),
        ('C Cecile', 'C')],
    'base': [('1011_2', '1011_{2}'), ('1A_{16}', '\\boxed{1A_{16}}')],
    'words': [
        ('Right triangle', 'It is a \\boxed{\\text{right triangle}}.'),
        ('\\text{Friday}', 'The day is Friday.'),
        ('infinitely many', '\\infty')],
}
# Rule: pairs that are not the same.
_DIFFERENT = {
    'finding': [
        ('24', '\\boxed{25}'), ('24', '<think>\\boxed{24}</think> Unsure.'),
        ('7', ''), ('0', ''), ('0', '\\boxed{}'), ('0', '\\boxed{?}'),
        ('1', 'first \\boxed{1} then \\boxed{9}'), ('0', 'I do not know.'),
        ('3', 'The answer is either 3 or 4.'), ('24', '<think> It is 24')],
    'languages': [('12', '答えは13です。'), ('2.5', 'La respuesta es 2,6.')],
    'number': [
        ('42', '#### 43'), ('1000000', '1000001'), ('1000000', '1000000.5'),
        ('42', '4 2'), ('1234', '1, 234'), ('12', 'twenty'),
        ('4:30 p.m.', '4:30 a.m.'), ('12:00', '1:00')],
    'decimals': [
        ('1/3', '0.33'), ('\\pi', '355/113'), ('\\pi', '3.14'),
        ('12.34', '12.345678'), ('5.001', '5'), ('2.5', '2.53'), ('1,2', '1.2'),
        ('1.2', '1,2')],
    'percent': [('10\\%', '0.01'), ('0.1', '10'), ('25\\%', '0.25\\%')],
    'angle': [('\\pi/3', '30^\\circ'), ('90^\\circ', '90 \\text{ rad}')],
    'unit': [
        ('5 km', '5 m'), ('10 cm', '10 kg'), ('3 hours', '3 minutes'),
        ('2ab', '2')],
    'set': [
        ('1, 2', '1'), ('1, 2', '1, 2, 3'), ('5', '5 \\pm 1'),
        ('(1,2)', '\\{1,2\\}'), ('1, 2, 3', '1, 2, 3, \\ldots')],
    'assignment': [
        ('x=5', 'y=5'), ('12', 'n = 12 + 1'), ('2x+z=1', '1'),
        ('x=1, y=2', 'x=2, y=1')],
    'names': [('\\pi r^2', '\\pi a^2'), ('xy^2', 'x^2y'), ('2x', '2y')],
    'interval': [
        ('[0,\\infty)', '(0,\\infty)'), ('(1,3)', '(1,2)\\cup(2,3)'),
        ('3', 'x > 2'), ('1/2', '[0,1]'), ('\\emptyset', '\\{0\\}')],
    'relation': [
        ('x>3', 'x \\ge 3'), ('x>3', 'x<3'), ('a<b<c', 'a<c<b'),
        ('x+y=1', 'x-y=1')],
    'tuple': [('(1,2)', '(2,1)'), ('(1,2)', '(1,2,0)')],
    'matrix': [('\\begin{pmatrix}1&2\\end{pmatrix}',
                '\\begin{pmatrix}1\\\\2\\end{pmatrix}')],
    'ratio': [('2:3', '3:2'), ('2:1', '1')],
    'closed form': [
        ('2\\sqrt{3}', '\\boxed{3\\sqrt{2}}'), ('3+4i', '3-4i'),
        ('\\log_3 2', '\\frac{\\ln 3}{\\ln 2}')],
    'expression': [
        ('x', '-x'), ('|x|', 'x'), ('x', 'x+10^{-20}'), ('CAT', 'TAC'),
        ('(a^m)^n', 'a^{m^n}')],
    'size': [
        ('\\frac{1}{2004!}', '\\frac{1}{2006!}'),
        ('\\frac{1}{2^{99}}', '\\frac{1}{2^{98}}'),
        ('\\sqrt2+10^{-300}', '\\sqrt2'), ('e^{-300}', 'e^{-400}'),
        ('100', '10^{10^{10^{10}}}'), ('(10^9)!', '(10^9+1)!')],
    'choice': [
        ('B', '(A)'), ('A', 'A, B, C, D'), ('B', '(A) or (B)'),
        ('B', 'not B'), ('E', '\\mathrm{E}*2')],
    'base': [('1011_2', '1011_3'), ('52_8', '528'), ('52_8', '52')],
    'words': [('Right triangle', 'left triangle'), ('odd', 'even')],
}


def _rows(table):
  return [pytest.param(*pair, id=f'{rule}-{i}')
          for rule, pairs in table.items() for i, pair in enumerate(pairs)]


@pytest.mark.parametrize('gold, answer', _rows(_SAME))
def test_the_same(gold, answer):
  assert math.equivalent(gold, answer) is True


@pytest.mark.parametrize('gold, answer', _rows(_DIFFERENT))
def test_not_the_same(gold, answer):
  assert math.equivalent(gold, answer) is False


@pytest.mark.parametrize('gold', ['', ' ', '$$', '\\text{}', '>', 't(0,4]'])
def test_an_unreadable_gold_is_none(gold):
  assert math.equivalent(gold, '\\boxed{1}') is None
  assert math.score('', gold) is None


def test_the_found_answer_is_what_was_boxed():
  found, _ = extract.find('So \\boxed{1{,}2} or \\boxed{3}')
  assert found.strip() == '1{,}2, 3'
