// A chart is a function that says what to draw; it is asked again when data, theme or width change.
(function (report) {
  'use strict';

  const { el, theme } = report;
  const charts = [];
  const NARROW = 480; // pixels; below it labels get shorter
  const touch = matchMedia('(pointer: coarse)');

  /** Plotly reads some HTML in every text it draws: a name must come out as it is. */
  const escape = (text) => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

  /** Lines of a hover box; each is escaped. */
  const hover = (...lines) => lines.filter((line) => line !== null).map(escape).join('<br>');

  /** With both ends, because names may differ in the last one alone. */
  const shorten = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.floor(most / 2))}…${text.slice(1 - Math.ceil(most / 2))}`);

  /**
   * Draw into a <figure>.
   *
   * @param {HTMLElement} figure
   * @param {object} options
   * @param {string} options.label text for screen readers
   * @param {string} [options.title] shown above it
   * @param {function} options.build ({narrow, width, on}) -> {traces, layout, height}; a trace's `legendgroup` names
   *   its entry in the legend, and `on` returns whether an entry is drawn
   * @param {function} [options.legend] () -> [{key, name, style}]
   * @param {string[]} [options.hidden] keys of entries that are not drawn at first
   */
  function chart(figure, { label, title, build, legend = () => [], hidden = [] }) {
    const off = new Set(hidden);
    const caption = el('figcaption', { text: title ?? '' });
    const keys = el('ul', { class: 'legend', 'aria-label': `Lines of: ${label}` });
    const plot = el('div', { class: 'plot', role: 'img', 'aria-label': label });
    figure.replaceChildren(...(title ? [caption] : []), keys, plot);

    function draw() {
      const width = plot.clientWidth || figure.clientWidth;
      const { traces, layout, height } = build({ narrow: width < NARROW, width, on: (key) => !off.has(key) });
      for (const trace of traces) trace.visible = !off.has(trace.legendgroup);
      Plotly.react(plot, traces, frame(layout, height, width), { displayModeBar: false, doubleClick: 'reset' });
      keys.replaceChildren(...legend().map((entry, place) => legendEntry(entry, !off.has(entry.key), () => {
        if (!off.delete(entry.key)) off.add(entry.key);
        draw();
        keys.querySelectorAll('button')[place].focus();
      })));
    }
    const made = { draw, retitle: (text) => { caption.textContent = text; } };
    charts.push(made);
    draw();
    return made;
  }

  /** The layout that all charts share, with their own merged in. */
  function frame(own, height, width) {
    const { ink, soft, grid, axis, page } = theme();
    const shared = {
      gridcolor: grid, zerolinecolor: axis, linecolor: axis, tickcolor: axis, automargin: true,
      tickfont: { color: soft }, fixedrange: touch.matches,
    };
    const { xaxis, yaxis, ...rest } = own;
    const layout = {
      width, // not left to Plotly, which keeps the first one: paper is narrower than the screen
      height: height ?? 320,
      margin: { l: 48, r: 14, t: 10, b: 44 },
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      font: { family: 'system-ui, sans-serif', size: width < NARROW ? 11.5 : 13, color: ink },
      showlegend: false,
      hovermode: 'closest',
      hoverlabel: { bgcolor: page, bordercolor: axis, font: { color: ink, size: 13 }, align: 'left' },
      dragmode: touch.matches ? false : 'zoom', // a finger scrolls the page
      xaxis: { ...shared, ...xaxis },
      yaxis: { ...shared, ...yaxis },
      ...rest,
    };
    for (const key of Object.keys(rest)) {
      if (/^[xy]axis\d+$/.test(key)) layout[key] = { ...shared, ...rest[key] };
    }
    return layout;
  }

  const title = (text) => ({ text, standoff: 8, font: { size: 12.5, color: theme().soft } });

  function legendEntry({ name, style }, on, toggle) {
    const button = el('button', { type: 'button', 'aria-pressed': String(on), onclick: toggle }, [
      sample(style), el('span', { text: name }),
    ]);
    return el('li', {}, [button]);
  }

  const PATTERNS = {
    solid: '', dash: '7 4', dot: '2 3', dashdot: '7 3 2 3', longdash: '11 4', longdashdot: '11 3 2 3',
  };
  const SHAPES = {
    circle: 'M14 2.5a3.5 3.5 0 1 0 .01 0z', square: 'M10.8 2.8h6.4v6.4h-6.4z', diamond: 'M14 1.6l4.4 4.4-4.4 4.4-4.4-4.4z',
    'triangle-up': 'M14 1.8l4.4 7.6H9.6z', cross: 'M12.7 2h2.6v2.7H18v2.6h-2.7V10h-2.6V7.3H10V4.7h2.7z',
    x: 'M11.2 1.7L14 4.5l2.8-2.8 1.5 1.5L15.5 6l2.8 2.8-1.5 1.5L14 7.5l-2.8 2.8-1.5-1.5L12.5 6 9.7 3.2z',
  };

  /** A short line as the chart draws it. */
  function sample({ color, dash, marker }) {
    const space = 'http://www.w3.org/2000/svg'; // a name, not an address
    const svg = document.createElementNS(space, 'svg');
    for (const [key, value] of Object.entries({ width: 28, height: 12, viewBox: '0 0 28 12', 'aria-hidden': true })) {
      svg.setAttribute(key, value);
    }
    const shapes = [['line', { x1: 0, y1: 6, x2: 28, y2: 6, stroke: color, 'stroke-width': 2, 'stroke-dasharray': PATTERNS[dash] ?? '' }]];
    if (marker) shapes.push(['path', { d: SHAPES[marker], fill: color }]);
    for (const [tag, attributes] of dash === null ? shapes.slice(1) : shapes) {
      const node = document.createElementNS(space, tag);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      svg.append(node);
    }
    return svg;
  }

  /** From the least to the largest value with some air, at least `least` wide. */
  function range(values, air, least) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const reach = Math.max((high - low) * (0.5 + air), least / 2);
    return [(low + high) / 2 - reach, (low + high) / 2 + reach];
  }

  const redrawAll = () => charts.forEach((each) => each.draw());

  Object.assign(report, { chart, escape, hover, range, sample, shorten, title, redrawAll });
})((globalThis.losspoolReport ||= {}));
