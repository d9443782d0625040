// Fills the page from its data.
(function (report) {
  'use strict';

  const { el, byId } = report;
  const data = JSON.parse(byId('data').textContent);

  report.showPreviews(data);
  report.showScores(data);
  report.showClasses(data);
  report.showPixels(data);
  report.showLooks(data);
  report.showMetrics(data);
  report.showConfusion(data);
  report.showCurves(data);
  report.showSampling(data);
  report.showPooling(data);
  report.showPanel(data);
  report.showCompared(data);

  // After the sections: those that do not apply are gone by now.
  byId('contents').append(...[...document.querySelectorAll('nav ~ section')].map((section) =>
    el('li', {}, [el('a', { href: `#${section.id}`, text: section.querySelector('h2').textContent })])));

  report.onThemeChange(report.redrawAll);
  // Labels depend on the width, which changes when a phone is turned.
  let width = document.documentElement.clientWidth;
  addEventListener('resize', () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    report.redrawAll();
  });
})((globalThis.losspoolReport ||= {}));
