// Scores of the variants, their gains over the baseline, and recall per look.
(function (report) {
  'use strict';

  const { el, byId, NONE, spread, signed, percent, interval, count, listed, hover, escape, range, shorten, title, look, theme } = report;

  report.showScores = (data) => {
    const { variants } = data;
    const baseline = variants.find((each) => each.baseline);
    const [images, both] = ['over_images', 'over_both'].map((key) => variants.some((each) => each[key]));
    byId('scores-text').textContent = `mIoU in percent, from ${report.scoreSource(data)}; gains are in points over ${baseline.label}.`;
    report.table(byId('scores-table'), {
      caption: 'Scores of the variants',
      columns: [
        { text: 'variant' },
        { text: 'seeds', numeric: true },
        { text: 'mIoU ± spread', numeric: true },
        { text: 'gain', numeric: true },
        { text: images ? '95 % over seeds' : '95 % interval', numeric: true },
        ...(images ? [{ text: '95 % over images', numeric: true }] : []),
        ...(both ? [{ text: '95 % over both', numeric: true }] : []),
        { text: 'at baseline in step', numeric: true },
      ],
      rows: variants.map((variant) => [
        { text: variant.label },
        { text: String(variant.seeds.length) },
        { text: spread(variant.score) },
        { text: variant.gain ? signed(variant.gain.mean) : NONE },
        { text: interval(variant.gain) },
        ...(images ? [{ text: interval(variant.over_images) }] : []),
        ...(both ? [{ text: interval(variant.over_both) }] : []),
        { text: variant.first_step === null ? NONE : count(variant.first_step) },
      ]),
    });
    byId('scores-notes').append(...notes(data).map((text) => el('li', { text })));
    showGains(variants);
  };

  function notes({ variants, level, source, steps, failures }) {
    const found = failures.length ? [`Failed, and so without a score: ${failures.join('; ')}.`] : [];
    const over = (what) => variants.filter((each) => each.spread_over === what).map((each) => each.label);
    const [seeds, checkpoints] = [over('seeds'), over('checkpoints')];
    const which = (labels) => (labels.length === variants.length ? '' : ` for ${listed(labels)}`);
    if (seeds.length) found.push(`± is the standard deviation over seeds${which(seeds)}.`);
    if (checkpoints.length) {
      found.push(`± is the standard deviation over the checkpoints ${listed(steps.map(count))}${which(checkpoints)}, as there is one seed only.`);
    }
    const others = variants.filter((each) => !each.baseline);
    if (others.some((each) => each.gain && each.gain.low !== null)) {
      found.push('The interval over seeds is Student’s, of the mean difference between runs of the same seed. It covers retraining.');
    }
    if (others.some((each) => each.over_images)) {
      found.push('The interval over images covers resampling the images, those of a group or of a stretch of video together. It does not cover retraining, other places or cameras.');
    }
    if (others.some((each) => each.over_both)) {
      found.push('The interval over both covers retraining and resampling the images together; it is the one to report.');
    }
    for (const why of new Set(others.map((each) => each.no_images).filter(Boolean))) {
      const labels = others.filter((each) => each.no_images === why).map((each) => each.label);
      found.push(`Without an interval over images, because ${why}${labels.length === others.length ? '' : `: ${listed(labels)}`}.`);
    }
    if (others.some((each) => !each.gain || each.gain.low === null)) {
      found.push('Where the interval over seeds is missing, fewer than two seeds are shared with the baseline: the gain may be chance.');
    }
    if (level !== null) {
      const mean = source === 'validation' ? '' : ' (validation during training)';
      found.push(`“At baseline in step” is the first validation, mean over seeds, that is as good as the baseline’s last one: ${percent(level)}${mean}.`);
    }
    return found;
  }

  /** The intervals of a gain that a variant may have; the first one is the one to report. */
  const INTERVALS = [
    ['both', ({ over_both: both }) => both],
    ['seeds', ({ gain }) => (gain.low === null ? null : gain)],
    ['images', ({ over_images: images }) => images],
  ];

  function showGains(variants) {
    const shown = variants.map((variant, index) => ({ variant, index })).filter(({ variant }) => variant.gain);
    if (!shown.length) {
      byId('gain-chart').remove();
      return;
    }
    const kinds = INTERVALS.filter(([, of]) => shown.some(({ variant }) => of(variant)));
    const [first, ...others] = kinds.map(([name]) => name);
    const bars = others.length ? `: thick over ${first}, thin over ${others.join(' and ')}` : first ? ` over ${first}` : '';
    const faint = ({ score }) => !kinds.length && score.std !== null;
    const without = shown.some(({ variant }) => faint(variant))
      ? ', without an interval; the faint bar is the ± of the score' : ', without any interval: it may be chance';
    const ends = shown.flatMap(({ variant }) => [...INTERVALS.map(([, of]) => of(variant)), faint(variant) ? spreadBar(variant) : null]
      .flatMap((each) => (each ? [each.low, each.high] : [])));
    report.chart(byId('gain-chart'), {
      label: `Gains in mIoU over the baseline${kinds.length ? ' with their 95 % intervals' : ''}; the numbers are in the table above.`,
      title: `Gain over the baseline${kinds.length ? `, with 95 % intervals${bars}` : without}`,
      build: ({ narrow }) => ({
        height: 90 + 34 * shown.length,
        traces: shown.flatMap(({ variant, index }, row) => gainTraces(variant, look(index), row, kinds, faint(variant))),
        layout: {
          xaxis: {
            title: title('points of mIoU'), zeroline: true, zerolinecolor: theme().ink,
            // Around zero: a small gain beside its wide interval must look small.
            range: range([0, ...ends, ...shown.map(({ variant }) => variant.gain.mean)].map((value) => 100 * value), 0.06, 2),
          },
          yaxis: {
            tickvals: shown.map((_, row) => row),
            ticktext: shown.map(({ variant }) => escape(shorten(variant.label, narrow ? 16 : 36))),
            range: [shown.length - 0.4, -0.6], zeroline: false, showgrid: false, fixedrange: true,
          },
        },
      }),
    });
  }

  /** The spread that the table prints, around the gain. */
  const spreadBar = ({ gain, score }) => ({ low: gain.mean - score.std, high: gain.mean + score.std });

  /** The gain with the first kind of interval, and the others thinly above and below; or else its spread, faintly. */
  function gainTraces(variant, { color, marker }, row, kinds, faint) {
    const { label, gain, over_images: images, over_both: both } = variant;
    const trace = (each, y, thickness, point) => ({
      type: 'scatter', mode: 'markers', x: [100 * gain.mean], y: [y], marker: { color, symbol: marker, size: 11, ...point },
      error_x: each ? errorBar([100 * (each.high - gain.mean)], [100 * (gain.mean - each.low)], color, thickness) : undefined,
      hoverinfo: 'text',
      hovertext: [hover(label, `gain ${signed(gain.mean)}`, gain.low === null ? 'no interval over seeds' : `over seeds ${interval(gain)}`,
        images ? `over images ${interval(images)}` : null, both ? `over both ${interval(both)}` : null)],
    });
    const [thick, ...thin] = kinds.map(([, of]) => of(variant));
    const found = thin.flatMap((each, place) => (each ? [trace(each, row + [-0.22, 0.22][place], 1.2, { opacity: 0 })] : []));
    if (faint) found.push({ ...trace(spreadBar(variant), row, 2, {}), opacity: 0.35 });
    return [...found, trace(thick, row, 3, {})];
  }

  /** None where nothing has a length: Plotly would draw the caps alone. */
  const errorBar = (array, arrayminus, color, thickness = 2) => (array.every((value) => value === null) ? undefined : {
    type: 'data', symmetric: false, array, arrayminus, color, thickness, width: 5,
  });

  report.showLooks = (data) => {
    const { looks, variants } = data;
    if (!looks.length) {
      byId('looks').remove();
      return;
    }
    report.table(byId('looks-table'), {
      caption: 'Recall of each look',
      sortable: true,
      columns: [{ text: 'look' }, ...variants.map(({ label }) => ({ text: label, numeric: true }))],
      rows: looks.map((name) => [
        { text: name, sort: name },
        ...variants.map(({ recall }) => ({ text: percent(recall[name]), sort: recall[name] ?? null })),
      ]),
    });
  };

  report.errorBar = errorBar;
})((globalThis.losspoolReport ||= {}));
