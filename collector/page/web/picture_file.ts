// A chart as a file: SVG with the colours that it has now, or the pixels of a canvas.
import {button} from './dom';

const kStyles = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'opacity', 'font-family', 'font-size', 'font-weight'];

function save(url: string, name: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
}

function svgText(chart: SVGElement): string {
  const copy = chart.cloneNode(true) as SVGElement;
  const from = [chart, ...chart.querySelectorAll('*')], to = [copy, ...copy.querySelectorAll('*')];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of kStyles) to[i]!.setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('style', `background: ${getComputedStyle(document.body).backgroundColor}`);
  return new XMLSerializer().serializeToString(copy);
}

// For a section's controls: saves the chart that `plot` holds then, as NAME.svg or NAME.png.
export function saveButton(plot: HTMLElement, name: string): HTMLButtonElement {
  return button('Save picture', () => {
    const canvas = plot.querySelector('canvas'), chart = plot.querySelector('svg');
    if (canvas !== null) return save(canvas.toDataURL('image/png'), `${name}.png`);
    if (chart === null) return;
    const url = URL.createObjectURL(new Blob([svgText(chart)], {type: 'image/svg+xml'}));
    save(url, `${name}.svg`);
    URL.revokeObjectURL(url);
  }, `Save the picture of ${name}`);
}
