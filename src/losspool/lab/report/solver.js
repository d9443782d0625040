// The optimal weights of loss max-pooling for one pool of losses, in double precision.
//
// The same mathematics as losspool/solver/, with a sort: a page has a hundred losses, not a million.
(function (report) {
  'use strict';

  /** log(a / b) for positive numbers. The quotient is the more precise way, but it may underflow. */
  function logRatio(a, b) {
    const ratio = a / b;
    return ratio >= 2.3e-308 && ratio < Infinity ? Math.log(ratio) : Math.log(a) - Math.log(b);
  }

  /** exponent · log, where an exponent of infinity (p = 1) leaves equal losses equal. */
  function scaled(exponent, log) {
    return log === 0 ? 0 : exponent * log;
  }

  /**
   * @param {number[]} losses not negative, finite
   * @param {number} p from 1 to Infinity
   * @param {number} m in pixels, a real number; at least 1 and at most all pixels are taken
   * @returns {{weights: number[], alpha: number, tau: number, saturated: number}}
   */
  function solvePooling(losses, p, m) {
    const n = losses.length;
    const pixels = Math.min(Math.max(m, 1), n);
    const beyond = 1 / (p - 1); // q - 1, without cancellation; Infinity at p = 1
    if (1 + beyond === 1 || pixels === n) {
      return { weights: losses.map(() => 1 / n), alpha: 0, tau: 1 / n, saturated: n };
    }
    const q = 1 + beyond;
    const tau = Math.pow(n, 1 / p - 1) * Math.pow(pixels, -1 / p);
    const found = largestRoot(losses, pixels, q);
    if (found === null) { // fewer than m positive losses: each of them gets all it can
      const weights = losses.map((loss) => (loss > 0 ? tau : 0));
      return { weights, alpha: 0, tau, saturated: weights.filter((w) => w > 0).length };
    }
    const { reference, logFill } = found;
    const weights = losses.map((loss) => {
      if (loss === 0) return 0;
      return tau * Math.exp(Math.min(scaled(beyond, logRatio(loss, reference)) - logFill / p, 0));
    });
    return {
      weights,
      alpha: reference * Math.exp(logFill / q),
      tau,
      saturated: weights.filter((weight) => weight === tau).length,
    };
  }

  /**
   * The largest unsaturated loss u, and log(Σ (ℓ/u)^q / room) over the unsaturated: α = u·(Σ / room)^(1/q).
   *
   * Sums are relative to u. Relative to the largest loss of all they would underflow near p = 1.
   */
  function largestRoot(losses, pixels, q) {
    const sorted = losses.filter((loss) => loss > 0).sort((a, b) => b - a);
    const totals = new Array(sorted.length); // of the losses from k on, relative to the k-th
    for (let k = sorted.length - 1; k >= 0; k--) {
      const rest = k + 1 < sorted.length ? totals[k + 1] * Math.exp(scaled(q, logRatio(sorted[k + 1], sorted[k]))) : 0;
      totals[k] = 1 + rest;
    }
    // With k losses saturated, α ≥ the next one if its total fills the room that they leave.
    for (let k = 0; k < sorted.length && k < pixels; k++) {
      const fill = totals[k] / (pixels - k);
      if (fill >= 1) return { reference: sorted[k], logFill: Math.log(fill) };
    }
    return null;
  }

  report.solvePooling = solvePooling;
  report.poolingWeights = (losses, p, m) => solvePooling(losses, p, m).weights;
})((globalThis.losspoolReport ||= {}));
