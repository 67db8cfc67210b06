"""Scripts that find unreadable text on a page."""

from __future__ import annotations

# Elements that are wider than the page. Those inside a frame that scrolls are left out.
STICKING_OUT = """
const width = document.documentElement.clientWidth;
return [...document.querySelectorAll('main *, header *')]
  .filter(e => !e.closest('.scroll, nav, svg') && e.getBoundingClientRect().right > width + 1)
  .map(e => e.outerHTML.slice(0, 120));
"""
# WCAG contrast of text against the nearest opaque background.
FAINT = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgb = color => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
  .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c[3] === 255) return c; } return [255, 255, 255, 255]; };
return [...document.querySelectorAll('main *, header *, footer *')]
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && !e.closest('svg'))
  .map(e => { const [a, b] = [rgb(getComputedStyle(e).color), ground(e)].map(luminance).sort((x, y) => y - x);
    return [e.outerHTML.slice(0, 80), (a + 0.05) / (b + 0.05)]; })
  .filter(([_, ratio]) => ratio < 4.5);
"""
# Shapes of charts that are painted in a light colour over more than a tenth of the chart.
DRAWN_WHITE = """
return [...document.querySelectorAll('svg rect')].filter(e => {
  const own = e.getBoundingClientRect(), all = e.ownerSVGElement.getBoundingClientRect();
  const light = getComputedStyle(e).fill.match(/\\d+/g).slice(0, 3).every(part => part > 200);
  return light && own.width * own.height > 0.1 * all.width * all.height;
}).map(e => e.outerHTML.slice(0, 120));
"""
