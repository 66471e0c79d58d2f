"""The page of answers, clicked through in a headless browser."""
import re
import shutil
import time

import pytest

from rlclip import evaluate
from rlclip.analysis import answers_page

HOSTILE = ('</script><script>window.hacked = 1</script>'
           '<img src=x onerror="window.hacked = 1">'
           '<!-- <b>&lt;\u2028 \0 $style')


def answer(problem, verdict, text, extracted='1', finish='stop'):
  score = {'right': 1.0, 'wrong': 0.0, 'unscored': None}[verdict]
  return evaluate.Answer(
      problem, f'What is {problem}?', text, '1', score, finish, 12, extracted,
      extracted is not None)


FIRST = [
    answer('one', 'right', 'plain words'),
    answer('one', 'wrong', 'Zebra crossing', '2'),
    answer('two', 'wrong', 'cut sho', None, 'length'),
    answer('two', 'wrong', HOSTILE, HOSTILE),
    answer('three', 'right', 'ok'), answer('three', 'unscored', 'hm')]
SECOND = [answer(HOSTILE, 'right', 'fine')]


def render():
  return answers_page.render([
      answers_page.Sheet(
          name, {'model': HOSTILE}, evaluate.summary(rows), rows)
      for name, rows in (('first', FIRST), (HOSTILE, SECOND))])


def test_the_file_stands_alone_and_holds_nothing_hostile():
  page = render()
  # Its own two script elements; texts are inside neither as they were.
  assert len(re.findall('<script', page)) == 2
  assert len(re.findall('</script', page)) == 2
  assert '<img' not in page and '<!--' not in page
  # It names no other file; the one address is the name of SVG.
  assert not re.search(r'\s(?:src|href)\s*=\s*["\']|@import|url\(', page)
  assert re.findall(r'\w+://[^\'"]*', page) == ['http://www.w3.org/2000/svg']


@pytest.fixture(scope='module')
def browser():
  webdriver = pytest.importorskip('selenium.webdriver')
  chromium, driver = shutil.which('chromium'), shutil.which('chromedriver')
  if not (chromium and driver):
    pytest.skip('needs chromium and chromedriver (.ci/run installs them)')
  options = webdriver.ChromeOptions()
  options.binary_location = chromium
  for flag in ('headless=new', 'no-sandbox', 'disable-gpu',
               'disable-dev-shm-usage', 'window-size=1200,800'):
    options.add_argument(f'--{flag}')
  options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
  made = webdriver.Chrome(options, webdriver.ChromeService(driver))
  yield made
  made.quit()


@pytest.fixture
def page(browser, tmp_path):
  path = tmp_path / 'page.html'
  path.write_text(render(), encoding='utf-8')
  browser.get(path.as_uri())
  return Page(browser)


class Page:
  """What a person sees and does."""

  def __init__(self, browser):
    self.browser = browser

  def all(self, selector):
    return self.browser.find_elements('css selector', selector)

  def texts(self, selector):
    return [element.text for element in self.all(selector)]

  def click(self, selector, number=0):
    self.all(selector)[number].click()

  def filter(self, name):
    self.click(f'[data-filter="{name}"]')

  def search(self, text):
    field, before = self.all('#search')[0], self.texts('#count')
    field.clear()
    field.send_keys(text)
    end = time.monotonic() + 20
    while self.texts('#count') == before and time.monotonic() < end:
      time.sleep(0.05)

  @property
  def problems(self):
    return self.texts('#problems .id span:first-child')


def test_filters_leave_the_answers_they_name(page):
  assert page.problems == ['one', 'two', 'three']
  assert page.texts('[data-filter]') == [
      'all 6', 'right 2', 'wrong 3', 'truncated 1', 'no answer 1',
      'unscored 1']
  page.filter('right')
  assert page.problems == ['one', 'three']
  assert page.texts('.answer pre') == ['plain words']
  assert page.texts('h2') == ['1 answer, 1 not shown']
  page.filter('truncated')
  assert page.problems == ['two']
  assert page.texts('.answer .badge') == ['wrong', 'truncated', 'no answer']
  # Clicked, it keeps the focus: the next key does not start at the top.
  assert page.browser.switch_to.active_element.text == 'truncated 1'
  page.filter('unscored')
  assert page.texts('.answer pre') == ['hm']
  page.filter('all')
  assert page.texts('#count') == ['6 answers, 3 problems']


def test_search_finds_in_answers_and_problems_and_marks(page):
  page.search('zebra')
  assert page.problems == ['one']
  assert page.texts('.answer pre') == ['Zebra crossing']
  assert page.texts('mark') == ['Zebra']
  page.search('what is three')  # in the problem: all of its answers
  assert page.problems == ['three'] and len(page.all('.answer')) == 2
  page.filter('right')
  assert page.texts('.answer pre') == ['ok']
  page.search('nowhere to be found')
  assert page.problems == [] and page.texts('.empty') == [
      'No answer is like this.']


def test_problems_open_by_click_and_key_and_can_be_ordered(page):
  page.click('#problems button', 1)
  assert page.texts('h1') == ['two']
  page.browser.find_element('css selector', 'body').send_keys('j')
  assert page.texts('h1') == ['three']
  page.click('#order option[value=hard]')
  assert page.problems == ['two', 'one', 'three']
  page.click('summary')
  assert not page.all('.answer')[0].get_property('open')


def test_what_a_model_wrote_is_text(page):
  page.click('#problems button', 1)
  shown = page.all('.answer pre')[1].get_property('textContent')
  # The parser of the JSON gives every sign back, the null byte too.
  assert shown == HOSTILE
  page.click('#tasks button', 1)
  assert page.all('h1')[0].get_property('textContent') == HOSTILE
  page.search('onerror')
  assert page.texts('mark')
  run = page.browser.execute_script
  assert run('return window.hacked') is None
  assert page.all('img') == [] and page.all('main script') == []
  # Nothing was asked for, and nothing was refused or failed.
  assert run('return performance.getEntriesByType("resource").length') == 0
  assert page.browser.get_log('browser') == []


def test_a_script_that_came_in_would_not_run(page):
  page.browser.execute_script(
      'document.body.insertAdjacentHTML("beforeend", arguments[0]);'
      'const s = document.createElement("script");'
      's.textContent = "window.hacked = 1"; document.body.append(s);',
      '<img src="data:," onerror="window.hacked = 1">')
  time.sleep(0.3)
  assert page.browser.execute_script('return window.hacked') is None
