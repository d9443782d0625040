// IoU of each class, as a table to sort and a chart; and gains against the number of pixels.
(function (report) {
  'use strict';

  const { byId, NONE, spread, signed, interval, count, hover, escape, range, shorten, title, look, theme, errorBar } = report;
  const SHOWN_AT_FIRST = 5; // more variants in one row of dots are hard to distinguish

  /** Places of the variants: the baseline, then the others by their score. */
  const ranked = (variants) => variants.map((_, index) => index).sort((a, b) =>
    Number(variants[b].baseline) - Number(variants[a].baseline) || variants[b].score.mean - variants[a].score.mean);

  report.showClasses = (data) => {
    const { classes, variants } = data;
    let order = classes.map((_, index) => index);
    const chart = () => drawn.draw();
    report.table(byId('class-table'), {
      caption: 'IoU of each class',
      sortable: true,
      columns: columns(variants),
      rows: classes.map((info, index) => row(info, index, variants)),
      sorted: (now) => { order = now; chart(); },
    });
    const drawn = report.chart(byId('class-chart'), {
      label: 'IoU of each class by variant, with its spread; the numbers are in the table above.',
      legend: () => variants.map(({ label }, index) => ({
        key: String(index), name: label, style: { ...look(index), dash: null },
      })),
      hidden: ranked(variants).slice(SHOWN_AT_FIRST).map(String),
      build: ({ narrow, on }) => dots(classes, variants, order, narrow, on),
    });
  };

  function columns(variants) {
    const found = [{ text: 'class' }, { text: 'pixels', numeric: true }];
    for (const { label } of variants) found.push({ text: label, numeric: true });
    for (const { label, baseline } of variants) {
      if (!baseline) found.push({ text: `gain of ${label}`, numeric: true }, { text: '95 % interval', numeric: true });
    }
    return found;
  }

  function row(info, index, variants) {
    const cells = [{ text: info.name, sort: info.name, color: info.color }, { text: count(info.pixels), sort: info.pixels }];
    for (const { class_scores: scores } of variants) {
      cells.push({ text: spread(scores[index]), sort: scores[index]?.mean ?? null });
    }
    for (const { baseline, class_gains: gains } of variants) {
      if (baseline) continue;
      const gain = gains[index];
      cells.push({ text: gain ? signed(gain.mean) : NONE, sort: gain?.mean ?? null });
      cells.push({ text: interval(gain), sort: gain?.low ?? null, faint: true });
    }
    return cells;
  }

  function dots(classes, variants, order, narrow, on) {
    const rows = variants.map((_, index) => index).filter((index) => on(String(index)));
    const rowHeight = Math.max(24, 10 * rows.length + 8);
    const traces = variants.map((variant, index) => {
      const { color, marker } = look(index);
      const present = order.map((place, at) => ({ place, at })).filter(({ place }) => variant.class_scores[place]);
      const scores = present.map(({ place }) => variant.class_scores[place]);
      // Side by side inside the row, so that intervals do not cover one another.
      const offset = Math.min(0.22, 0.7 / rows.length) * (rows.indexOf(index) - (rows.length - 1) / 2);
      const spreads = scores.map(({ std }) => (std === null ? null : 100 * std));
      return {
        type: 'scatter', mode: 'markers', legendgroup: String(index),
        x: scores.map(({ mean }) => 100 * mean),
        y: present.map(({ at }) => at + offset),
        marker: { color, symbol: marker, size: 8 },
        error_x: errorBar(spreads, spreads, color, 1.3),
        cliponaxis: false, // a dot at zero stays whole
        hoverinfo: 'text',
        hovertext: present.map(({ place }, at) => hover(classes[place].name, variant.label, `IoU ${spread(scores[at])}`)),
      };
    });
    return {
      height: 70 + rowHeight * classes.length,
      traces,
      layout: {
        xaxis: { title: title('IoU in percent'), rangemode: 'tozero', zeroline: false },
        yaxis: {
          tickvals: order.map((_, at) => at),
          ticktext: order.map((place) => escape(shorten(classes[place].name, narrow ? 13 : 28))),
          range: [classes.length - 0.4, -0.6], zeroline: false, fixedrange: true,
        },
      },
    };
  }

  report.showPixels = (data) => {
    const { classes } = data;
    const others = data.variants.map((variant, index) => ({ variant, index })).filter(({ variant }) => !variant.baseline);
    if (!others.length) {
      byId('pixels').remove();
      return;
    }
    let chosen = others.findIndex(({ index }) => index === ranked(data.variants).find((place) => !data.variants[place].baseline));
    if (others.length > 1) {
      byId('pixels-controls').append(report.select('Variant', others.map(({ variant }) => variant.label), chosen, (place) => {
        chosen = place;
        drawn.draw();
      }));
    }
    const drawn = report.chart(byId('pixels-chart'), {
      label: 'Gain of each class against its number of pixels; the numbers are in the table of classes.',
      build: ({ narrow, width }) => scatter(classes, others[chosen], narrow, width),
    });
  };

  function scatter(classes, { variant, index }, narrow, width) {
    const { color, marker } = look(index);
    const points = classes.map((info, place) => ({ info, gain: variant.class_gains[place] }))
      .filter(({ info, gain }) => gain && info.pixels > 0); // a class of no pixels has no place on a log axis
    const reach = (side) => points.map(({ gain }) => (gain.low === null ? null : 100 * Math.abs(gain[side] - gain.mean)));
    const height = narrow ? 340 : 420;
    const margin = { l: 56, r: 16, t: 10, b: 48 };
    const size = narrow ? 10.5 : 12;
    const names = points.map(({ info }) => shorten(info.name, narrow ? 12 : 28));
    const x = range(points.map(({ info }) => Math.log10(info.pixels)), 0.1, 0.5);
    const y = range(points.flatMap(({ gain }) => [gain.mean, gain.low ?? 0, gain.high ?? 0, 0].map((value) => 100 * value)), 0.08, 1);
    const across = width - margin.l - margin.r;
    const down = (gain) => (height - margin.t - margin.b) * (y[1] - 100 * gain) / (y[1] - y[0]); // in pixels
    const places = labelPlaces(points.map(({ info, gain }, at) => ({
      x: across * (Math.log10(info.pixels) - x[0]) / (x[1] - x[0]),
      y: down(gain.mean), top: down(gain.high ?? gain.mean), bottom: down(gain.low ?? gain.mean),
      width: 0.6 * size * names[at].length,
    })), across, down(0), size);
    return {
      height,
      traces: [{
        type: 'scatter', mode: 'markers+text',
        x: points.map(({ info }) => info.pixels),
        y: points.map(({ gain }) => 100 * gain.mean),
        text: names.map((name, at) => (places[at] ? escape(name) : '')),
        textposition: places.map((place) => place ?? 'middle right'),
        textfont: { size, color: theme().soft },
        cliponaxis: false,
        marker: { color, symbol: marker, size: 9 },
        error_y: errorBar(reach('high'), reach('low'), color, 1.2),
        hoverinfo: 'text',
        hovertext: points.map(({ info, gain }) => hover(
          info.name, `${count(info.pixels)} pixels`, `gain ${signed(gain.mean)} points`,
          gain.low === null ? 'no interval: one seed' : `95 % interval ${interval(gain)}`,
        )),
      }],
      layout: {
        margin,
        xaxis: { type: 'log', title: title('pixels of the class (log scale)'), dtick: 1, zeroline: false, range: x },
        yaxis: { title: title('gain in points of IoU'), zeroline: true, zerolinecolor: theme().soft, range: y },
      },
    };
  }

  /** Beside which side of its point each name fits without covering another; null where it fits nowhere: hovering shows it. */
  function labelPlaces(points, width, zero, size) {
    const taken = [[0, zero - 1, width, zero + 1]]; // left, top, right, bottom
    for (const { x, y, top, bottom } of points) taken.push([x - 5, y - 5, x + 5, y + 5], [x - 1, top, x + 1, bottom]);
    return points.map(({ x, y, width: own }) => {
      const sides = {
        'middle right': [x + 7, y - size / 2, x + 9 + own, y + size / 2],
        'middle left': [x - 9 - own, y - size / 2, x - 7, y + size / 2],
        'top right': [x + 3, y - size - 6, x + 5 + own, y - 6],
        'bottom right': [x + 3, y + 6, x + 5 + own, y + size + 6],
        'top left': [x - 5 - own, y - size - 6, x - 3, y - 6],
        'bottom left': [x - 5 - own, y + 6, x - 3, y + size + 6],
      };
      for (const [side, box] of Object.entries(sides)) {
        const inside = box[0] >= 0 && box[2] <= width;
        if (inside && !taken.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) {
          taken.push(box);
          return side;
        }
      }
      return null;
    });
  }
})((globalThis.losspoolReport ||= {}));
