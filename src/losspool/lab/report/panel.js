// Fig. 2 of the paper, with p and m in the reader's hands.
(function (report) {
  'use strict';

  const { el, byId, number, hover, title, look, theme } = report;
  const P = [1, 1.01, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2, 2.3, 2.6, 3, 3.5, 4, 5, 6, 7, 8, 9, 10, Infinity];

  report.showPanel = ({ losses }) => {
    const n = losses.length;
    const state = { p: 1.3, share: 0.25 };
    const ranks = losses.map((_, index) => index + 1);
    const draw = () => { facts(); drawn.draw(); };
    const solve = () => report.solvePooling(losses, state.p, state.share * n);
    const formatP = (p) => (p === Infinity ? '∞' : String(p));
    byId('panel-controls').append(
      report.slider('p', { id: 'panel-p', min: 0, max: P.length - 1, value: P.indexOf(1.3), format: (place) => formatP(P[place]) },
        (place) => { state.p = P[place]; draw(); }),
      report.slider('m', { id: 'panel-m', min: 1, max: 100, value: 25, format: (percent) => `${percent} % of the pixels` },
        (percent) => { state.share = percent / 100; draw(); }),
    );

    function facts() {
      const { alpha, tau, saturated } = solve();
      const found = [['α, the loss from which on a pixel is saturated', number(alpha, 3)],
        ['τ · n, the largest weight', number(tau * n, 3)], ['saturated pixels', `${saturated} of ${n}`]];
      byId('panel-facts').replaceChildren(...found.map(([name, value]) => el('div', {}, [el('dt', { text: name }), el('dd', { text: value })])));
    }

    const drawn = report.chart(byId('panel-chart'), {
      label: 'Optimal weight of each of 100 sorted losses for the chosen p and m, above the losses themselves',
      build: ({ narrow }) => {
        const { weights } = solve();
        const { soft, grid, axis } = theme();
        return {
          height: narrow ? 380 : 440,
          traces: [
            {
              type: 'scatter', mode: 'lines', x: ranks, y: weights.map((weight) => weight * n),
              line: { color: look(1).color, width: 2.4 }, hoverinfo: 'text',
              hovertext: weights.map((weight, at) => hover(`pixel ${at + 1}`, `loss ${number(losses[at], 3)}`, `weight · n = ${number(weight * n, 3)}`)),
            },
            {
              type: 'scatter', mode: 'lines', x: ranks, y: losses, yaxis: 'y2', fill: 'tozeroy', fillcolor: grid,
              line: { color: soft, width: 1 }, hoverinfo: 'text',
              hovertext: losses.map((loss, at) => hover(`pixel ${at + 1}`, `loss ${number(loss, 3)}`)),
            },
          ],
          layout: {
            xaxis: { title: title('pixels, sorted by loss'), range: [1, n], anchor: 'y2', zeroline: false },
            yaxis: { title: title('weight · n'), rangemode: 'tozero', domain: [0.32, 1] },
            yaxis2: { title: title('loss'), rangemode: 'tozero', domain: [0, 0.22], nticks: 3 },
            // The plain mean: every pixel weighs one.
            shapes: [{ type: 'line', xref: 'x', yref: 'y', x0: 1, x1: n, y0: 1, y1: 1, line: { color: axis, width: 1, dash: 'dot' } }],
            annotations: [{ x: 1, y: 1, xref: 'x', yref: 'y', text: 'plain mean', showarrow: false, xanchor: 'left', yanchor: 'bottom', font: { size: 11, color: soft } }],
          },
        };
      },
    });
    facts();
  };
})((globalThis.losspoolReport ||= {}));
