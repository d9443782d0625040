// Two runs side by side through training: what they predict, and where their losses look.
(function (report) {
  'use strict';

  const { el, byId, count, number } = report;

  report.showPreviews = (data) => {
    const { previews, runs, classes } = data;
    const body = byId('previews-body');
    if (!previews.runs.length) {
      byId('previews').remove();
      return;
    }
    const labels = previews.runs.map(({ run }) => report.runLabel(data, runs[run]));
    const names = [...new Set(previews.runs.flatMap(({ images }) => images.map(({ name }) => name)))];
    const chosen = report.firstTwo(data, previews.runs.map(({ run }) => runs[run]));
    const state = { name: names[0], step: 0 };

    const entry = (place) => previews.runs[place].images.find(({ name }) => name === state.name);
    /** The steps of any chosen run at which there is a picture. */
    const moments = () => [...new Set(chosen.flatMap((place) => (entry(place)?.frames ?? []).map(({ step }) => step)))]
      .sort((a, b) => a - b);
    /** A run's picture at a step, or its last one before it: runs may have been validated at different steps. */
    const frameAt = (place) => {
      const frames = entry(place)?.frames ?? [];
      return frames.filter((frame) => frame.step <= state.step).at(-1) ?? frames[0] ?? null;
    };

    const slots = {
      image: slot(), label: slot('crisp'),
      predictions: chosen.map(() => slot('crisp')), weights: chosen.map(() => stackedSlot()),
    };
    const stepField = el('div', { class: 'field' });

    function newSteps() {
      const steps = moments();
      state.step = steps.at(-1) ?? 0;
      stepField.replaceChildren(report.slider('Step', {
        id: 'preview-step', min: 0, max: Math.max(steps.length - 1, 0), value: steps.length - 1,
        format: (place) => (steps.length ? count(steps[place]) : report.NONE),
      }, (place) => { state.step = steps[place]; draw(); }));
      draw();
    }

    function draw() {
      const source = chosen.map(entry).find(Boolean) ?? {};
      const show = (where, place, caption, alt) => where.show(previews.pictures[place] ?? null, caption, alt);
      show(slots.image, source.image, state.name, `The image ${state.name}`);
      show(slots.label, source.label, 'label', `The label of ${state.name}`);
      chosen.forEach((place, side) => {
        const frame = frameAt(place);
        const caption = frame ? `${labels[place]}, step ${count(frame.step)}` : labels[place];
        show(slots.predictions[side], frame?.prediction, caption, `Prediction of ${caption}`);
        show(slots.weights[side], frame?.weights, `weights of ${caption}`, `Weight of every pixel in the loss of ${caption}`);
        slots.weights[side].under(previews.pictures[entry(place)?.image] ?? null);
      });
    }

    const choosers = chosen.map((place, side) =>
      report.select(chosen.length > 1 ? `Run ${'AB'[side]}` : 'Run', labels, place, (now) => { chosen[side] = now; newSteps(); }));
    const image = report.select('Image', names, 0, (place) => { state.name = names[place]; newSteps(); });
    const fade = (value) => slots.weights.forEach((where) => where.fade(value / 100));
    const opacity = report.slider('Opacity of the weights', {
      id: 'preview-opacity', min: 0, max: 100, step: 5, value: 70, format: (value) => `${value} %`,
    }, fade);
    const legend = el('ul', { class: 'legend', 'aria-label': 'Colours of the classes' });
    report.classLegend(legend, [...classes, { name: 'void', color: data.void }]);
    body.append(
      el('div', { class: `viewer${chosen.length < 2 ? ' single' : ''}` },
        // Read by columns: below the image its label, below a prediction the weights of the same run.
        [slots.image, ...slots.predictions, slots.label, ...slots.weights].map(({ figure }) => figure)),
      el('div', { class: 'controls' }, [...choosers, image, stepField, opacity]),
      el('div', { class: 'keys' }, [legend, scale(previews.scale)]),
    );
    if (previews.left_out) {
      body.append(el('p', { class: 'notes', text:
        `To keep the page small it has pictures of the baseline and the best ${previews.runs.length - 1} other variants, first seed each.` }));
    }
    slots.label.figure.classList.add('second');
    fade(70);
    newSteps();
  };

  /** A place for a picture. The element stays when the picture changes, so that nothing flickers. */
  function slot(kind = null) {
    const caption = el('figcaption');
    const image = el('img', { class: kind, decoding: 'sync', alt: '' });
    const missing = el('p', { class: 'missing', text: 'no picture' });
    return {
      image,
      figure: el('figure', {}, [caption, image, missing]),
      show(source, text, alt) {
        caption.textContent = text;
        image.hidden = source === null;
        missing.hidden = source !== null;
        if (source === null) image.removeAttribute('src');
        else image.src = source;
        image.alt = alt;
      },
    };
  }

  /** A picture over another. The lower one is grey: its own colours would mix with those of the weights. */
  function stackedSlot() {
    const upper = slot('crisp above');
    const below = el('img', { class: 'below', alt: '', decoding: 'sync' });
    const stack = el('div', { class: 'stack' });
    upper.image.replaceWith(stack);
    stack.append(below, upper.image);
    return {
      ...upper,
      under(source) {
        below.hidden = source === null || upper.image.hidden;
        if (source !== null) below.src = source;
        upper.image.classList.toggle('above', !below.hidden); // alone it takes its own room
      },
      fade(opacity) { upper.image.style.opacity = opacity; },
    };
  }

  /** The colours of the weights, in units of the weight that every pixel has in a plain mean. */
  function scale({ top, open, colors }) {
    const bar = el('div', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.background = `linear-gradient(to right, ${colors.join(', ')})`;
    const tick = (text, at) => {
      const node = el('span', { text });
      node.style.left = `${at}%`;
      return node;
    };
    const end = `${number(top, 1)}${open ? ' and more' : ''}`;
    return el('div', { class: 'scale' }, [
      el('div', { text: 'Weight of a pixel, in units of the plain mean’s' }),
      bar,
      el('div', { class: 'ticks' }, [tick('0', 0), tick('1', 100 / top), tick(end, 100)]),
    ]);
  }
})((globalThis.losspoolReport ||= {}));
