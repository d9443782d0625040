// Colours by light and dark, and the looks of variants: colour, dash and marker differ, so that none is needed alone.
(function (report) {
  'use strict';

  // Okabe and Ito's colours, made for colour-blind readers; grey in place of black, yellow left out on white.
  const LIGHT = ['#4d4d4d', '#0072b2', '#d55e00', '#009e73', '#c0609a', '#b87a00', '#3a9bd6'];
  // The same hues, lighter: on a dark page the originals sink in.
  const DARK = ['#c4c4c4', '#4aa8e8', '#f28a4b', '#35c79c', '#e29ac4', '#f0bd4e', '#94d3f7'];
  // Six of each against seven colours: the pairs repeat after 42.
  const DASHES = ['solid', 'dash', 'dot', 'dashdot', 'longdash', 'longdashdot'];
  const MARKERS = ['circle', 'square', 'diamond', 'triangle-up', 'cross', 'x'];

  const dark = matchMedia('(prefers-color-scheme: dark)');
  let printing = false;

  /** What charts are drawn with now. On paper always the light one. */
  function theme() {
    const isDark = dark.matches && !printing;
    return isDark
      ? { dark: true, ink: '#e4e7ea', soft: '#a3adb7', grid: '#2c3238', axis: '#59636e', page: '#14171a', colors: DARK }
      : { dark: false, ink: '#1f2328', soft: '#59636e', grid: '#e6e9ec', axis: '#9aa4ae', page: '#ffffff', colors: LIGHT };
  }

  /** How the i-th of several lines looks. */
  function look(index) {
    const colors = theme().colors;
    return {
      color: colors[index % colors.length],
      dash: DASHES[index % DASHES.length],
      marker: MARKERS[index % MARKERS.length],
    };
  }

  function onThemeChange(redraw) {
    dark.addEventListener('change', redraw);
    const print = (now) => {
      printing = now;
      document.documentElement.classList.toggle('printing', now); // as wide as paper, before charts are drawn
      redraw();
    };
    addEventListener('beforeprint', () => print(true));
    addEventListener('afterprint', () => print(false));
  }

  Object.assign(report, { theme, look, onThemeChange });
})((globalThis.losspoolReport ||= {}));
