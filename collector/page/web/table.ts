// A table that sorts by any column, searches, and shows the first rows of many.
import {button, h} from './dom';
import {Settings} from './settings';
import {announce} from './tooltip';
import {count} from './units';

export interface Column<Row> {
  title: string;
  text: (row: Row) => string | Node;
  number?: (row: Row) => number | null;  // sorts by it; without: by the text, and left-aligned
  whole?: (row: Row) => string;  // what a file gets, where `text` is shortened
  wide?: boolean;  // may wrap
  path?: (row: Row, index: number) => string | null;  // of the number in report.json
  unit?: string;
}

export interface TableOptions<Row> {
  id: string;
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  sort?: number;  // column, largest first; none: as given
  most?: number;  // rows shown at first
  search?: string;  // label of the search box; none: no box
  matches?: (row: Row, words: string) => boolean;
  mark?: (row: Row) => boolean;  // rows that stand out
  chosen?: (row: Row) => boolean;  // rows that are selected
  choose?: (row: Row) => void;
  chooseWords?: (row: Row) => string;
}

// What the viewer has set on a table.
interface View { sort: number | null; down: boolean; words: string; all: boolean }

class Table<Row> {
  readonly root: HTMLElement;
  private readonly body = h('tbody');
  private readonly more = h('p', {class: 'note'});
  private readonly heads: HTMLElement[] = [];
  private readonly view: View;
  private shown: Row[] = [];

  constructor(private readonly options: TableOptions<Row>, settings: Settings) {
    this.view = settings.of<View>(options.id, {sort: null, down: true, words: '', all: false});
    const head = h('tr', {}, ...options.columns.map((column, i) => this.head(column, i)));
    const wide = h('div', {class: 'wide', tabindex: 0, role: 'region', 'aria-label': `${options.label}: table`},
                   h('table', {id: options.id}, h('thead', {}, head), this.body));
    this.root = h('div', {}, options.search ? this.searchBox(options.search) : null, wide, this.more,
                  h('p', {class: 'take'}, button('Save as CSV', () => this.save(), `Save ${options.label} as CSV, all rows`),
                    button('Copy as Markdown', () => this.copy(), `Copy ${options.label} as Markdown, the rows shown`)));
    this.fill();
  }

  private head(column: Column<Row>, i: number): HTMLElement {
    const cell = h('th', {scope: 'col', class: column.number ? 'number' : 'text', 'aria-sort': 'none'},
                   button(column.title, () => {
                     this.view.down = this.sort() === i ? !this.view.down : column.number !== undefined;
                     this.view.sort = i;
                     this.fill();
                   }));
    this.heads.push(cell);
    return cell;
  }

  private searchBox(label: string): HTMLElement {
    const box = h('input', {type: 'search', value: this.view.words, oninput: () => {
      this.view.words = box.value;
      this.fill();
    }});
    return h('label', {class: 'search'}, h('span', {}, label), box);
  }

  private words(column: Column<Row>, row: Row): string {
    const words = column.text(row);
    return typeof words === 'string' ? words : words.textContent ?? '';
  }
  // All rows, with numbers as they are: in the units of report.json.
  private save(): void {
    const cell = (value: string): string => /^[=+@\t\r-]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
    const quoted = (value: string): string => `"${cell(value).replace(/"/g, '""')}"`;
    const {columns, rows, id} = this.options;
    const lines = [columns.map(({title, unit}) => quoted(unit ? `${title} (${unit})` : title)),
                   ...rows.map(row => columns.map(column => column.number ? String(column.number(row) ?? '') : quoted(column.whole?.(row) ?? this.words(column, row))))];
    const link = h('a', {href: URL.createObjectURL(new Blob([lines.map(line => line.join(',') + '\r\n').join('')], {type: 'text/csv'})), download: `${id}.csv`});
    link.click();
    URL.revokeObjectURL(link.href);
  }
  private copy(): void {
    const line = (of: string[]): string => `| ${of.map(words => words.replace(/\|/g, '\\|')).join(' | ')} |`;
    const {columns} = this.options;
    const lines = [line(columns.map(({title}) => title)), line(columns.map(({number}) => number ? '--:' : '---')),
                   ...this.shown.map(row => line(columns.map(column => this.words(column, row))))];
    const box = h('textarea', {class: 'unseen', 'aria-hidden': true, tabindex: -1}, lines.join('\n'));
    document.body.append(box);
    box.select();
    announce(document.execCommand('copy') ? `${count(this.shown.length)} rows copied` : 'The browser refuses to copy');
    box.remove();
  }

  // A column that is not there now (of the run only, or of a selection only) sorts again when it is back.
  private sort(): number | null {
    const chosen = this.view.sort ?? this.options.sort ?? null;
    return chosen !== null && chosen < this.options.columns.length ? chosen : null;
  }

  private key(row: Row, sort: number): number | string {
    const column = this.options.columns[sort];
    if (column.number) return column.number(row) ?? -Infinity;
    return this.words(column, row);
  }

  private fill(): void {
    const {options} = this;
    const {down, all} = this.view;
    const sort = this.sort();
    const words = this.view.words.toLowerCase();
    const matches = options.matches ?? (() => true);
    let rows = options.rows.map((row, index) => ({row, index})).filter(({row}) => words === '' || matches(row, words));
    if (sort !== null) {
      const direction = down ? -1 : 1;
      rows = rows.map(entry => ({entry, key: this.key(entry.row, sort)}))
                 .sort((a, b) => direction * (typeof a.key === 'number' && typeof b.key === 'number' ? a.key - b.key : String(a.key).localeCompare(String(b.key), undefined, {numeric: true})))
                 .map(({entry}) => entry);
    }
    this.heads.forEach((cell, i) => cell.setAttribute('aria-sort', sort !== i ? 'none' : down ? 'descending' : 'ascending'));
    const most = all ? rows.length : options.most ?? 50;
    this.shown = rows.slice(0, most).map(({row}) => row);
    this.body.replaceChildren(...rows.slice(0, most).map(({row, index}) => this.line(row, index)));
    this.more.replaceChildren(rows.length > most
        ? button(`Show all ${count(rows.length)} rows`, () => { this.view.all = true; this.fill(); }) : rows.length === 0 ? 'Nothing matches.' : '');
  }

  private line(row: Row, index: number): HTMLElement {
    const {options} = this;
    const cells = options.columns.map((column, i) => {
      const content = column.text(row);
      const css = `${column.number ? 'number' : 'text'}${column.wide ? ' wrap' : ''}`;
      if (i === 0) {
        return h('th', {scope: 'row', class: css},
                 options.choose ? button(options.chooseWords!(row), () => options.choose!(row), column.whole?.(row)) : content);
      }
      return h('td', {class: css, 'data-path': column.path?.(row, index) ?? null, 'data-unit': column.unit ?? null}, content);
    });
    const css = [options.mark?.(row) ? 'marked' : '', options.chosen?.(row) ? 'chosen' : ''].filter(word => word !== '').join(' ');
    return h('tr', {class: css || null}, ...cells);
  }
}

// Sorting and search are kept in `settings`, by the table's id.
export function table<Row>(options: TableOptions<Row>, settings: Settings): HTMLElement { return new Table(options, settings).root; }
