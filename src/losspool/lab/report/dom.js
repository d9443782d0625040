// Elements, controls and numbers. Text enters the page as text only: names come from outside.
(function (report) {
  'use strict';

  const NONE = '–';

  /** An element; `properties` may hold attributes, `class`, `text`, and `on<event>` functions. */
  function el(tag, properties = {}, children = []) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(properties)) {
      if (value === null || value === undefined || value === false) continue;
      if (key === 'text') node.textContent = value;
      else if (key === 'class') node.className = value;
      else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? '' : value);
    }
    node.append(...children);
    return node;
  }

  const byId = (id) => document.getElementById(id);

  let controls = 0;

  /** A labelled <select>; options are texts, the value is their place. */
  function select(label, options, value, change) {
    const id = `control-${++controls}`;
    const node = el('select', { id }, options.map((text, place) => el('option', { value: place, text })));
    node.value = String(value);
    node.addEventListener('change', () => change(Number(node.value)));
    return el('div', { class: 'field' }, [el('label', { for: id, text: label }), node]);
  }

  /** A labelled range input with its value beside it; `format` turns the number into text. */
  function slider(label, { min, max, step = 1, value, format, id = `control-${++controls}` }, change) {
    const node = el('input', { type: 'range', id, min, max, step, value });
    const output = el('output', { for: id });
    const show = () => {
      output.textContent = format(Number(node.value));
      node.setAttribute('aria-valuetext', output.textContent);
    };
    node.addEventListener('input', () => { show(); change(Number(node.value)); });
    show();
    return el('div', { class: 'field' }, [el('label', { for: id }, [`${label}: `, output]), node]);
  }

  const minus = (text) => text.replace('-', '−');
  const number = (value, digits = 2) => (value === null || value === undefined ? NONE : minus(value.toFixed(digits)));
  const percent = (value, digits = 2) => (value === null || value === undefined ? NONE : number(100 * value, digits));
  const signed = (value) => (value > 0 ? '+' : '') + percent(value);
  const count = (value) => value.toLocaleString('en');

  const spread = (score) => {
    if (!score) return NONE;
    return percent(score.mean) + (score.std === null ? '' : ` ± ${percent(score.std)}`);
  };
  const interval = (gain) => (!gain || gain.low === null ? NONE : `[${signed(gain.low)}, ${signed(gain.high)}]`);

  /** "a, b and c" */
  const listed = (words) => (words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`);

  Object.assign(report, { NONE, el, byId, select, slider, number, percent, signed, count, spread, interval, listed });
})((globalThis.losspoolReport ||= {}));
