// What was compared: variants, where and how they ran, and the settings that differ.
(function (report) {
  'use strict';

  const { el, byId, listed, count } = report;

  function scoreSource({ source, images, steps }) {
    const where = source === 'validation' ? 'the validation during training' : `the evaluation “${source}”`;
    const own = 'at the checkpoints that were evaluated of each run'; // such as its best
    const at = steps.length === 1 ? `at step ${count(steps[0])}` : steps.length ? `mean over steps ${listed(steps.map(count))}` : own;
    return `${where}${images === null ? '' : `, images ${images}`}, ${at}`;
  }

  function distinct(values) {
    return [...new Set(values)];
  }

  /** The one value of all runs, or that they differ in it. */
  function common(values) {
    const found = distinct(values);
    if (found.length === 1) return found[0];
    return found.length <= 3 ? `the runs differ: ${listed(found)}` : `the runs differ: ${found.length} in all, listed below`;
  }

  report.showCompared = (data) => {
    const { variants, runs, differences } = data;
    byId('lead').textContent =
      `${variants.length} ${variants.length === 1 ? 'variant' : 'variants'} in ${runs.length} ${runs.length === 1 ? 'run' : 'runs'} ` +
      `on ${data.dataset}, scored by ${scoreSource(data)}.`;

    const facts = [
      ['Dataset', data.dataset],
      ['Recipe', data.recipes.join(', ')],
      ['Model', data.model.join(', ')],
      ['Baseline', variants.find((each) => each.baseline).label],
      ['Commit', common(runs.map((run) => run.commit.slice(0, 12)))],
      ['Machine', common(runs.map((run) => run.machine))],
      ['PyTorch', common(runs.map((run) => run.torch))],
    ];
    const body = byId('compared-body');
    body.append(el('dl', { class: 'facts' }, facts.map(([name, value]) => el('div', {}, [el('dt', { text: name }), el('dd', { text: value })]))));

    const unfinished = runs.filter((run) => run.status !== 'finished');
    if (unfinished.length) {
      body.append(el('p', { class: 'note', text: `Not finished: ${listed(unfinished.map((run) => `${run.name} (${run.status})`))}.` }));
    }

    const settings = el('div');
    body.append(settings);
    report.table(settings, {
      caption: 'Variants and the settings in which they differ',
      columns: [{ text: 'variant' }, { text: 'seeds' }, ...differences.map(({ setting }) => ({ text: setting }))],
      rows: variants.map((variant, place) => [
        { text: variant.label },
        { text: variant.seeds.join(', ') },
        ...differences.map(({ values }) => ({ text: values[place] })),
      ]),
    });

    const each = el('div');
    body.append(el('details', {}, [el('summary', { text: `The ${runs.length} runs` }), each]));
    report.table(each, {
      caption: 'Runs',
      columns: ['run', 'variant', 'seed', 'status', 'commit', 'machine', 'torch'].map((text) => ({ text, numeric: text === 'seed' })),
      rows: runs.map((run) => [
        { text: run.name },
        { text: variants[run.variant].label },
        { text: String(run.seed) },
        { text: run.status },
        { text: run.commit.slice(0, 12) },
        { text: run.machine },
        { text: run.torch },
      ]),
    });
  };

  report.scoreSource = scoreSource;
})((globalThis.losspoolReport ||= {}));
