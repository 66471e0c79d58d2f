'use strict';
// Texts of models go into text nodes only: no innerHTML in this file.

const sheets = JSON.parse(document.getElementById('data').textContent);
// What search looks in, once: a page may hold megabytes.
for (const problem of sheets.flatMap((sheet) => sheet.problems)) {
  problem.low = [problem.id, problem.prompt, problem.gold]
      .join('\n').toLowerCase();
  for (const answer of problem.answers) {
    answer.low = `${answer.text}\n${answer.extracted || ''}`.toLowerCase();
  }
}
const filters = {
  all: () => true,
  right: (answer) => answer.verdict === 'right',
  wrong: (answer) => answer.verdict === 'wrong',
  truncated: (answer) => answer.finish === 'length',
  'no answer': (answer) => answer.format === false,
  unscored: (answer) => answer.verdict === 'unscored',
};
const always = ['all', 'right', 'wrong', 'truncated'];
const orders = {
  file: () => 0,
  hard: (a, b) => share(a) - share(b),
  easy: (a, b) => share(b) - share(a),
};
const state = {sheet: 0, filter: 'all', query: '', order: 'file', id: null};
const at = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function share(problem) {
  return problem.answers.filter(filters.right).length / problem.answers.length;
}

// The problem's answers that pass filter and search, with their numbers.
function matching(problem, filter = state.filter) {
  const whole = problem.low.includes(state.query);
  return problem.answers
      .map((answer, index) => ({answer, index}))
      .filter(({answer}) => filters[filter](answer) &&
          (whole || answer.low.includes(state.query)));
}

// `text` with what was searched for marked. Lower case may change a length
// (of a dotted capital I, say): then nothing is marked.
function marked(text) {
  const parts = document.createDocumentFragment();
  const low = text.toLowerCase();
  const query = low.length === text.length ? state.query : '';
  let from = 0;
  for (let to; query && (to = low.indexOf(query, from)) >= 0;) {
    parts.append(text.slice(from, to),
                 make('mark', {}, text.slice(to, to + query.length)));
    from = to + query.length;
  }
  parts.append(text.slice(from));
  return parts;
}

function count(number, thing) {
  return `${number} ${thing}${number === 1 ? '' : 's'}`;
}

function shown(number) {
  return number > 10 ? number.toFixed(0) : number.toFixed(3);
}

function interval(measure) {
  const space = 'http://www.w3.org/2000/svg';
  const picture = document.createElementNS(space, 'svg');
  picture.setAttribute('viewBox', '0 0 100 8');
  picture.setAttribute('preserveAspectRatio', 'none');
  const bar = (name, from, to, top, height) => {
    const part = document.createElementNS(space, 'rect');
    const values = {class: name, x: 100 * from, y: top, height,
                    width: 100 * (to - from)};
    for (const key in values) part.setAttribute(key, values[key]);
    picture.append(part);
  };
  bar('track', 0, 1, 3, 2);
  bar('range', measure.low, measure.high, 1, 6);
  const left = Math.min(Math.max(measure.value - 0.01, 0), 0.98);
  bar('point', left, left + 0.02, 0, 8);
  return picture;
}

function showHead() {
  const sheet = sheets[state.sheet];
  at('tasks').replaceChildren(...sheets.map((other, index) => make('button', {
    'type': 'button', 'aria-pressed': index === state.sheet,
    'onclick': () => change({sheet: index, id: null}),
  }, other.name)));
  at('facts').textContent = Object.entries(sheet.facts)
      .map(([name, value]) => `${name.replace(/_/g, ' ')} ${value}`)
      .join('  \u00b7  ');
  at('measures').replaceChildren(...sheet.measures.map((measure) => {
    const {low, high, method} = measure;
    const card = make('div', {class: 'measure'},
        make('div', {class: 'name'}, measure.name),
        make('div', {class: 'value'}, shown(measure.value)));
    if (method === 'none') return card;
    // Tokens have no scale to be drawn on.
    if (measure.name !== 'tokens') card.append(interval(measure));
    card.append(make('div', {class: 'interval',
      title: '95% interval over problems'},
    `${shown(low)} \u2013 ${shown(high)}`, make('br'), method));
    return card;
  }));
}

function showFilters() {
  const problems = sheets[state.sheet].problems;
  const buttons = [];
  for (const name of Object.keys(filters)) {
    const total = problems.reduce(
        (sum, problem) => sum + matching(problem, name).length, 0);
    if (!total && !always.includes(name) && state.filter !== name) continue;
    buttons.push(make('button', {
      'type': 'button', 'data-filter': name,
      'aria-pressed': name === state.filter,
      'onclick': () => change({filter: name}),
    }, `${name} ${total}`));
  }
  const hadFocus = at('filters').contains(document.activeElement);
  at('filters').replaceChildren(...buttons);
  if (hadFocus) at('filters').querySelector('[aria-pressed=true]').focus();
}

function listed() {
  return sheets[state.sheet].problems
      .map((problem) => ({problem, found: matching(problem)}))
      .filter(({found}) => found.length)
      .sort((a, b) => orders[state.order](a.problem, b.problem));
}

function dots(problem, found) {
  const visible = new Set(found.map(({index}) => index));
  return make('div', {class: 'dots'}, ...problem.answers.map(
      (answer, index) => make('span', {
        class: `dot ${answer.verdict}${visible.has(index) ? '' : ' hidden'}`,
        title: `answer ${index + 1}: ${answer.verdict}`})));
}

function showProblems(list) {
  const total = list.reduce((sum, {found}) => sum + found.length, 0);
  at('count').textContent =
      `${count(total, 'answer')}, ${count(list.length, 'problem')}`;
  at('problems').replaceChildren(...list.map(({problem, found}) => {
    const right = problem.answers.filter(filters.right).length;
    return make('button', {
      'type': 'button', 'data-id': problem.id,
      'onclick': () => change({id: problem.id}),
    }, make('div', {class: 'id'}, make('span', {}, problem.id),
            make('span', {}, `${right} / ${problem.answers.length}`)),
    dots(problem, found));
  }));
}

function showAnswer({answer, index}) {
  const head = make('summary', {},
      make('span', {}, `#${index + 1}`),
      make('span', {class: `badge ${answer.verdict}`}, answer.verdict));
  if (answer.finish === 'length') {
    head.append(make('span', {class: 'badge warn'}, 'truncated'));
  }
  if (answer.format === false) {
    head.append(make('span', {class: 'badge warn'}, 'no answer'));
  }
  if (answer.extracted !== null) {
    head.append(make('span', {class: 'extracted'}, 'answer ',
                     make('code', {}, marked(answer.extracted))));
  }
  head.append(make('span', {class: 'tokens'}, `${answer.tokens} tokens`));
  return make('details', {class: `card answer ${answer.verdict}`, open: ''},
              head, make('pre', {}, marked(answer.text)));
}

function showDetail(entry) {
  if (!entry) {
    at('detail').replaceChildren(
        make('p', {class: 'empty'}, 'No answer is like this.'));
    return;
  }
  const {problem, found} = entry;
  const hidden = problem.answers.length - found.length;
  at('detail').replaceChildren(
      make('h1', {}, problem.id),
      make('div', {class: 'card'}, make('pre', {}, marked(problem.prompt))),
      make('div', {class: 'card gold'}, 'Right answer: ',
           make('code', {}, marked(problem.gold))),
      make('h2', {}, count(found.length, 'answer') +
           (hidden ? `, ${hidden} not shown` : '')),
      ...found.map(showAnswer));
  at('detail').scrollTop = 0;
}

function change(news) {
  Object.assign(state, news);
  const list = listed();
  if (!list.some(({problem}) => problem.id === state.id)) {
    state.id = list.length ? list[0].problem.id : null;
  }
  if ('sheet' in news) showHead();
  if (!('id' in news) || 'sheet' in news) {
    showFilters();
    showProblems(list);
  }
  for (const button of at('problems').children) {
    button.setAttribute('aria-current', button.dataset.id === state.id);
  }
  showDetail(list.find(({problem}) => problem.id === state.id));
  const chosen = document.querySelector('[aria-current="true"]');
  if (chosen) chosen.scrollIntoView({block: 'nearest'});
}

let waiting = 0;
at('search').addEventListener('input', (event) => {
  clearTimeout(waiting);
  const query = event.target.value.toLowerCase();
  waiting = setTimeout(() => change({query}), 120);
});
at('order').addEventListener('change', (event) => {
  change({order: event.target.value});
});
document.addEventListener('keydown', (event) => {
  if (event.target.matches('input, select') || event.ctrlKey ||
      event.metaKey || event.altKey) return;
  if (event.key === '/') {
    event.preventDefault();
    at('search').focus();
  }
  const move = {j: 1, k: -1}[event.key];
  if (!move) return;
  const ids = listed().map(({problem}) => problem.id);
  const next = ids[ids.indexOf(state.id) + move];
  if (next !== undefined) change({id: next});
});
change({sheet: 0});
