// Tables in a container that scrolls by itself; sortable ones have buttons for headings.
(function (report) {
  'use strict';

  const { el } = report;

  /**
   * @param {HTMLElement} host
   * @param {object} options
   * @param {string} options.caption
   * @param {Array<{text: string, numeric?: boolean}>} options.columns the first one heads the rows
   * @param {Array<Array<{text: string, sort?: number|string|null, color?: string, faint?: boolean, shade?: number}>>} options.rows; a shade is from 0 to 1
   * @param {boolean} [options.sortable]
   * @param {function} [options.sorted] receives the new order of the rows
   */
  function table(host, { caption, columns, rows, sortable = false, sorted = () => {} }) {
    const bodies = rows.map((row) => el('tr', {}, row.map((cell, place) => bodyCell(cell, place, columns[place]))));
    const body = el('tbody', {}, bodies);
    const heads = columns.map((column, place) => {
      const head = el('th', { scope: 'col', class: column.numeric ? 'number' : null });
      if (!sortable) {
        head.textContent = column.text;
        return head;
      }
      head.setAttribute('aria-sort', 'none');
      head.append(el('button', { type: 'button', text: column.text, onclick: () => sort(place) }));
      return head;
    });

    function sort(place) {
      const before = heads[place].getAttribute('aria-sort');
      // What one looks for first: the largest numbers, the beginning of the alphabet.
      const first = columns[place].numeric ? 'descending' : 'ascending';
      const other = first === 'ascending' ? 'descending' : 'ascending';
      const direction = before === first ? other : first;
      heads.forEach((head, index) => head.setAttribute('aria-sort', index === place ? direction : 'none'));
      const order = rows.map((_, index) => index);
      order.sort((a, b) => compare(rows[a][place].sort, rows[b][place].sort, direction === 'ascending' ? 1 : -1));
      body.append(...order.map((index) => bodies[index]));
      sorted(order);
    }

    host.replaceChildren(el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, [
      el('table', {}, [el('caption', { text: caption }), el('thead', {}, [el('tr', {}, heads)]), body]),
    ]));
  }

  function bodyCell({ text, color, faint, shade }, place, column) {
    const head = place === 0;
    const names = [column.numeric ? 'number' : '', faint ? 'faint' : ''].join(' ').trim();
    const cell = el(head ? 'th' : 'td', { scope: head ? 'row' : null, class: names || null, title: head ? text : null });
    if (color) {
      const swatch = el('span', { class: 'swatch', 'aria-hidden': 'true' });
      swatch.style.background = color;
      cell.append(swatch);
    }
    if (shade) cell.style.background = `rgba(0, 114, 178, ${(0.6 * shade).toFixed(3)})`; // the text stays readable
    cell.append(text);
    return cell;
  }

  /** What is missing stands last in either direction. */
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === 'string') return sign * a.localeCompare(b, 'en', { numeric: true });
    return sign * (a - b);
  }

  report.table = table;
})((globalThis.losspoolReport ||= {}));
