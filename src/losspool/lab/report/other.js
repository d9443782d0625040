// Scores other than the IoU, and what each class is taken for.
(function (report) {
  'use strict';

  const { byId, NONE, spread, percent } = report;

  report.showMetrics = ({ metrics, classes, variants }) => {
    if (!metrics.length) {
      byId('metrics').remove();
      return;
    }
    const shown = variants.filter((variant) => variant.metrics);
    const draw = ({ key, name }) => report.table(byId('metrics-table'), {
      caption: `${name} of each class, in percent`,
      sortable: true,
      columns: [{ text: 'class' }, ...shown.map(({ label }) => ({ text: label, numeric: true }))],
      rows: [...classes, { name: 'mean', color: null }].map((info, place) => [
        { text: info.name, sort: info.name, color: info.color },
        ...shown.map((variant) => {
          const score = variant.metrics[key]?.[place] ?? null;
          return { text: spread(score), sort: score?.mean ?? null };
        }),
      ]),
    });
    byId('metrics-controls').append(report.select('Score', metrics.map(({ name }) => name), 0, (place) => draw(metrics[place])));
    draw(metrics[0]);
  };

  report.showConfusion = ({ classes, variants }) => {
    const shown = variants.filter((variant) => variant.confusion);
    if (!shown.length) {
      byId('confusion').remove();
      return;
    }
    const draw = ({ label, confusion }) => report.table(byId('confusion-table'), {
      caption: `Confusion of ${label}: rows are labels, columns are predictions, in percent of the label’s pixels`,
      columns: [{ text: 'label' }, ...classes.map(({ name }) => ({ text: name, numeric: true }))],
      rows: classes.map((info, row) => [
        { text: info.name, color: info.color },
        ...confusion[row].map((share) => ({ text: share === null ? NONE : percent(share, 1), shade: share ?? 0 })),
      ]),
    });
    if (shown.length > 1) {
      byId('confusion-controls').append(report.select('Variant', shown.map(({ label }) => label), 0, (place) => draw(shown[place])));
    }
    draw(shown[0]);
  };
})((globalThis.losspoolReport ||= {}));
