// Scores of the variants, their gains over the baseline, and recall per look.
(function (report) {
  'use strict';

  const { el, byId, NONE, spread, signed, percent, interval, count, listed, hover, escape, shorten, title, look, theme } = report;

  report.showScores = (data) => {
    const { variants } = data;
    const baseline = variants.find((each) => each.baseline);
    const images = variants.some((each) => each.over_images);
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
        { text: 'at baseline in step', numeric: true },
      ],
      rows: variants.map((variant) => [
        { text: variant.label },
        { text: String(variant.seeds.length) },
        { text: spread(variant.score) },
        { text: variant.gain ? signed(variant.gain.mean) : NONE },
        { text: interval(variant.gain) },
        ...(images ? [{ text: interval(variant.over_images) }] : []),
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
      found.push('The interval over images covers resampling the images, in blocks of consecutive ones. It does not cover retraining, other places or cameras.');
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

  function showGains(variants) {
    const shown = variants.map((variant, index) => ({ variant, index })).filter(({ variant }) => variant.gain);
    if (!shown.length) {
      byId('gain-chart').remove();
      return;
    }
    report.chart(byId('gain-chart'), {
      label: 'Gains in mIoU over the baseline with their 95 % intervals; the numbers are in the table above.',
      title: 'Gain over the baseline',
      build: ({ narrow }) => ({
        height: 90 + 34 * shown.length,
        traces: shown.map(({ variant, index }, row) => {
          const { mean, low, high } = variant.gain;
          const { color, marker } = look(index);
          return {
            type: 'scatter', mode: 'markers', x: [100 * mean], y: [row],
            marker: { color, symbol: marker, size: 11 },
            error_x: errorBar(low === null ? [null] : [100 * (high - mean)], low === null ? [null] : [100 * (mean - low)], color),
            hoverinfo: 'text',
            hovertext: [hover(variant.label, `gain ${signed(mean)}`, `interval ${interval(variant.gain)}`)],
          };
        }),
        layout: {
          xaxis: { title: title('points of mIoU'), zeroline: true, zerolinecolor: theme().ink, rangemode: 'tozero' },
          yaxis: {
            tickvals: shown.map((_, row) => row),
            ticktext: shown.map(({ variant }) => escape(shorten(variant.label, narrow ? 16 : 36))),
            range: [shown.length - 0.4, -0.6], zeroline: false, showgrid: false, fixedrange: true,
          },
        },
      }),
    });
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
