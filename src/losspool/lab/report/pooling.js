// What pooling did in two runs: α, the saturated share, and who gets the weight.
(function (report) {
  'use strict';

  const { el, byId, percent, number, count, hover, title, look } = report;

  report.showPooling = (data) => {
    const { classes, runs } = data;
    if (!runs.some(({ train }) => train.steps.length)) {
      byId('pooling').remove();
      return;
    }
    const chosen = report.firstTwo(data, runs);
    const labels = runs.map((run) => report.runLabel(data, run));
    const draw = () => {
      for (const chart of [alpha, saturated, ...masses]) chart.draw();
      masses.forEach((chart, side) => chart.retitle(labels[chosen[side]]));
    };
    byId('pooling-controls').append(...chosen.map((place, side) =>
      report.select(chosen.length > 1 ? `Run ${'AB'[side]}` : 'Run', labels, place, (now) => { chosen[side] = now; draw(); })));

    // As their variants look elsewhere; two seeds of one variant must differ all the same.
    const style = (place) => {
      const alike = new Set(chosen.map((each) => runs[each].variant)).size < chosen.length;
      return { ...look(alike ? chosen.indexOf(place) : runs[place].variant), marker: null };
    };
    const legend = () => [...new Set(chosen)].map((place) => ({ key: String(place), name: labels[place], style: style(place) }));

    function lines(key, unit, factor, format) {
      return {
        traces: [...new Set(chosen)].map((place) => {
          const { train } = runs[place];
          const { color, dash } = style(place);
          return {
            type: 'scatter', mode: 'lines', legendgroup: String(place), x: train.steps,
            y: train[key].map((value) => (value === null ? null : factor * value)),
            line: { color, dash, width: 2 }, hoverinfo: 'text',
            hovertext: train[key].map((value, at) => hover(labels[place], `step ${count(train.steps[at])}`, format(value))),
          };
        }),
        layout: { xaxis: { title: title('step'), rangemode: 'tozero' }, yaxis: { title: title(unit), rangemode: 'tozero' } },
      };
    }

    function mass(side) {
      const { classes: series } = runs[chosen[side]];
      return {
        traces: classes.map(({ name, color }, index) => ({
          // Bars without gaps, not areas: the pointer is then always inside the class that it names.
          type: 'bar', x: series.steps, y: series.mass[index].map((value) => (value === null ? null : 100 * value)),
          marker: { color, line: { width: 0 } }, hoverinfo: 'text', hovertext: series.mass[index].map((value, at) =>
            hover(name, `step ${count(series.steps[at])}`, `${percent(value, 1)} % of the weight`)), textposition: 'none',
        })),
        layout: {
          barmode: 'stack', bargap: 0,
          xaxis: { title: title('step'), showgrid: false },
          yaxis: { title: title('percent of the weight'), range: [0, 100] },
        },
      };
    }

    const alpha = report.chart(byId('alpha-chart'), {
      label: 'α of the chosen runs against steps', title: 'α', legend,
      build: () => lines('alpha', 'loss', 1, (value) => `α = ${number(value, 4)}`),
    });
    const saturated = report.chart(byId('saturated-chart'), {
      label: 'Share of saturated pixels of the chosen runs against steps', title: 'Saturated pixels', legend,
      build: () => lines('saturated', 'percent of the pixels', 100, (value) => `${percent(value)} % saturated`),
    });
    const masses = chosen.map((place, side) => report.chart(byId(`mass-chart-${'ab'[side]}`), {
      label: `Weight of each class against steps, run ${'AB'[side]}`, title: labels[place],
      build: () => mass(side),
    }));
    if (chosen.length < 2) byId('mass-chart-b').remove();
    report.classLegend(byId('mass-legend'), classes);
  };

  /** The first run of the baseline and of another variant, or of what there is. */
  report.firstTwo = (data, runs) => {
    const baseline = runs.findIndex((run) => data.variants[run.variant].baseline);
    const first = baseline < 0 ? 0 : baseline;
    const other = runs.findIndex((run) => run.variant !== runs[first].variant);
    const second = other < 0 ? runs.findIndex((_, place) => place !== first) : other;
    return second < 0 ? [first] : [first, second];
  };

  report.classLegend = (host, classes) => {
    host.replaceChildren(...classes.map(({ name, color }) => {
      const swatch = el('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.background = color;
      return el('li', {}, [swatch, el('span', { text: name })]);
    }));
  };
})((globalThis.losspoolReport ||= {}));
