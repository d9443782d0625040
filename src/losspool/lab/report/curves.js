// Validation and loss through training, and what the sampler made of the running IoU.
(function (report) {
  'use strict';

  const { el, byId, percent, number, count, hover, title, look } = report;
  const FEW_RUNS = 12; // beyond it the thin lines of single seeds would be a thicket

  /**
   * An exponential mean, corrected for its start: the first value stays, as no earlier one pulls it to zero.
   * Where a value is missing there is a gap.
   */
  function smoothed(values, weight) {
    let [sum, total] = [0, 0];
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      total = weight * total + (1 - weight);
      return sum / total;
    });
  }

  report.showCurves = (data) => {
    const { variants, runs } = data;
    const legend = () => variants.map(({ label }, index) => ({ key: String(index), name: label, style: { ...look(index), marker: null } }));
    const severalSeeds = runs.length > variants.length && runs.length <= FEW_RUNS;
    let weight = 0;
    const validated = variants.some((each) => each.miou.steps.length);
    const draw = () => { if (miou) miou.draw(); loss.draw(); };
    byId('curves-controls').append(report.slider(
      'Smoothing', { id: 'smoothing', min: 0, max: 0.98, step: 0.02, value: 0, format: (value) => (value ? value.toFixed(2) : 'none') },
      (value) => { weight = value; draw(); },
    ));

    function build(curveOf, factor, unit, markers) {
      const line = (curve, index, style, text) => ({
        type: 'scatter', mode: style.markers ? 'lines+markers' : 'lines', legendgroup: String(index),
        x: curve.steps, y: curve.values.map((value) => (value === null ? null : factor * value)),
        line: { color: look(index).color, dash: look(index).dash, width: style.width },
        marker: { color: look(index).color, symbol: look(index).marker, size: 6 },
        opacity: style.opacity, hoverinfo: text ? 'text' : 'skip',
        hovertext: text ? curve.values.map((value, at) => hover(text, `step ${count(curve.steps[at])}`, value === null ? null : number(factor * value, 3))) : undefined,
      });
      const smooth = (curve) => ({ ...curve, values: smoothed(curve.values, weight) });
      const traces = [];
      if (severalSeeds) {
        for (const run of runs) {
          traces.push(line(smooth(curveOf(run)), run.variant, { width: 0.8, opacity: 0.45 }, `${variants[run.variant].label}, seed ${run.seed}`));
        }
      }
      variants.forEach((variant, index) => {
        const curve = curveOf(variant);
        if (weight > 0) traces.push(line(curve, index, { width: 1, opacity: 0.3 }, null));
        traces.push(line(smooth(curve), index, { width: 2.4, opacity: 1, markers: markers && curve.steps.length <= 30 }, variant.label));
      });
      return {
        traces,
        layout: { xaxis: { title: title('step'), rangemode: 'tozero' }, yaxis: { title: title(unit) } },
      };
    }

    if (!validated) byId('miou-chart').remove();
    const miou = validated && report.chart(byId('miou-chart'), {
      label: 'mIoU of validation against training steps, a line per variant',
      title: 'mIoU of validation', legend,
      build: () => build((each) => each.miou, 100, 'percent', true),
    });
    const loss = report.chart(byId('loss-chart'), {
      label: 'Training loss against steps, a line per variant',
      title: 'Training loss', legend,
      build: () => build((each) => each.loss ?? { steps: each.train.steps, values: each.train.loss }, 1, 'loss', false),
    });
  };

  report.showSampling = (data) => {
    const { classes, runs } = data;
    if (!runs.some(({ classes: series }) => series.steps.length)) {
      byId('sampling').remove();
      return;
    }
    let run = runs.find(({ mix }) => mix > 0) ?? runs[0];
    // The rarest show best what the sampler does.
    const rare = classes.map((_, index) => index).filter((index) => classes[index].pixels > 0)
      .sort((a, b) => classes[a].pixels - classes[b].pixels).slice(0, 3);
    const common = classes.map((_, index) => index).sort((a, b) => classes[b].pixels - classes[a].pixels)[0];
    const chosen = new Set([...rare, common]);
    const draw = () => { note(); running.draw(); probabilities.draw(); };
    const note = () => {
      byId('sampling-note').textContent = run.mix > 0 ? '' :
        'This run draws its crops uniformly (sampling.mix is 0): the probabilities are those that aimed crops would have had.';
    };
    const samples = classes.map(() => el('span', { 'aria-hidden': 'true' }));
    const paint = () => samples.forEach((host, index) => host.replaceChildren(report.sample({ ...look(index), marker: null })));
    const checks = classes.map(({ name }, index) => {
      const box = el('input', { type: 'checkbox' });
      box.checked = chosen.has(index);
      box.addEventListener('change', () => {
        if (box.checked) chosen.add(index); else chosen.delete(index);
        draw();
      });
      return el('label', {}, [box, samples[index], el('span', { text: name })]);
    });
    byId('sampling-controls').append(
      report.select('Run', runs.map((each) => report.runLabel(data, each)), runs.indexOf(run), (place) => { run = runs[place]; draw(); }),
      el('fieldset', {}, [el('legend', { text: 'Classes' }), el('div', { class: 'checks' }, checks)]),
    );

    function build(key, unit) {
      const traces = [...chosen].sort((a, b) => a - b).map((index) => {
        const values = run.classes[key][index];
        const { color, dash } = look(index);
        return {
          type: 'scatter', mode: 'lines', x: run.classes.steps,
          y: values.map((value) => (value === null ? null : 100 * value)),
          line: { color, dash, width: 2 },
          hoverinfo: 'text',
          hovertext: values.map((value, at) => hover(classes[index].name, `step ${count(run.classes.steps[at])}`, `${percent(value)} %`)),
        };
      });
      return { traces, layout: { xaxis: { title: title('step'), rangemode: 'tozero' }, yaxis: { title: title(unit), rangemode: 'tozero' } } };
    }

    const running = report.chart(byId('running-chart'), {
      label: 'Running IoU of the chosen classes against steps', title: 'Running IoU',
      build: () => build('iou', 'percent'),
    });
    const probabilities = report.chart(byId('probability-chart'), {
      label: 'Probability with which the sampler aims at the chosen classes, against steps', title: 'Probability of being aimed at',
      build: () => build('probabilities', 'percent'),
    });
    note();
    paint();
    report.onThemeChange(paint);
  };

  report.runLabel = (data, run) => {
    const { label, seeds } = data.variants[run.variant];
    return seeds.length > 1 ? `${label}, seed ${run.seed}` : label;
  };
  report.smoothed = smoothed;
})((globalThis.losspoolReport ||= {}));
