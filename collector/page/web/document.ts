// A finding's document as elements: the little Markdown that docs/findings uses. Links to other documents, which are
// not beside the page, are their words.
import {append, h} from './dom';

const kInline = /`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)/g;

function inline(words: string): (Node | string)[] {
  const out: (Node | string)[] = [];
  let at = 0;
  for (const match of words.matchAll(kInline)) {
    out.push(words.slice(at, match.index));
    at = match.index! + match[0].length;
    if (match[1] !== undefined) out.push(h('code', {}, match[1]));
    else if (match[2] !== undefined) out.push(h('strong', {}, ...inline(match[2])));
    else if (/^https:/.test(match[4])) out.push(h('a', {href: match[4], rel: 'noreferrer'}, match[3]));
    else out.push(...inline(match[3]));
  }
  out.push(words.slice(at));
  return out;
}

function cells(line: string): string[] { return line.split('|').slice(1, -1).map(cell => cell.trim()); }

class Reader {
  private at = 0;
  constructor(private readonly lines: string[]) {}

  // Blocks whose lines are indented by `indent` at least.
  blocks(indent: number): Node[] {
    const out: Node[] = [];
    while (this.at < this.lines.length) {
      const line = this.lines[this.at];
      if (line.trim() === '') { ++this.at; continue; }
      if (line.search(/\S/) < indent) break;
      out.push(this.block(line.slice(indent), indent));
    }
    return out;
  }

  private block(line: string, indent: number): Node {
    if (line.startsWith('```')) return this.code(indent);
    if (/^#+ /.test(line)) { ++this.at; return h('h4', {}, ...inline(line.replace(/^#+ /, ''))); }
    if (line.startsWith('|')) return this.table(indent);
    const item = /^(\d+\.|-) /.exec(line);
    if (item !== null) return this.list(item[1] !== '-', indent);
    return this.paragraph(indent);
  }

  private code(indent: number): Node {
    const out: string[] = [];
    for (++this.at; this.at < this.lines.length && !this.lines[this.at].slice(indent).startsWith('```'); ++this.at) out.push(this.lines[this.at].slice(indent));
    ++this.at;
    return h('pre', {tabindex: 0}, out.join('\n'));
  }

  private table(indent: number): Node {
    const rows: string[][] = [];
    for (; this.lines[this.at]?.slice(indent).startsWith('|'); ++this.at) rows.push(cells(this.lines[this.at].slice(indent)));
    const row = (tag: 'th' | 'td', of: string[]) => h('tr', {}, ...of.map(cell => h(tag, {}, ...inline(cell))));
    return h('div', {class: 'wide', tabindex: 0}, h('table', {}, h('thead', {}, row('th', rows[0])), h('tbody', {}, ...rows.slice(2).map(of => row('td', of)))));
  }

  private list(numbered: boolean, indent: number): Node {
    const root = h(numbered ? 'ol' : 'ul');
    for (;;) {
      const item = /^(\d+\.|-) /.exec(this.lines[this.at]?.slice(indent) ?? '');
      if (item === null || (item[1] !== '-') !== numbered) return root;
      const inner = indent + item[0].length;
      this.lines[this.at] = ' '.repeat(inner) + this.lines[this.at].slice(inner);
      append(root, [h('li', {}, ...this.blocks(inner))]);
    }
  }

  private paragraph(indent: number): Node {
    const words: string[] = [];
    for (; this.at < this.lines.length; ++this.at) {
      const line = this.lines[this.at].slice(indent);
      if (line.trim() === '' || this.lines[this.at].search(/\S/) < indent || (words.length > 0 && /^(```|#+ |\d+\. |- |\|)/.test(line))) break;
      words.push(line.trim());
    }
    return h('p', {}, ...inline(words.join(' ')));
  }
}

export function documentOf(markdown: string): Node[] { return new Reader(markdown.split('\n')).blocks(0); }
