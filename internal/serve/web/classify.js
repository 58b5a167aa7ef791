// Classes of a text.

import { call } from './api.js';
import { h, id, count, percent, explain } from './dom.js';
import { bar } from './chart.js';

async function classify(model) {
  const status = id('classify-status');
  status.textContent = 'Reading…';
  try {
    const began = performance.now();
    const [result] = (await call('POST', '/v1/classify', { input: id('classify-text').value, model: model.id })).data;
    const ms = performance.now() - began;
    const rows = Object.entries(result.probabilities).sort((a, b) => b[1] - a[1]);
    id('classes').tBodies[0].replaceChildren(...rows.map(([name, p]) => h('tr', { class: name === result.class ? 'best' : null },
      h('th', { scope: 'row' }, name), h('td', {}, percent(p)), h('td', { class: 'drawn' }, bar([['a', p]])))));
    id('classes').hidden = false;
    const cut = result.truncated ? ' The text is longer: the model read a part of it.' : '';
    status.textContent = `${result.class}, ${percent(result.probabilities[result.class])}. ${result.tokens ? count(result.tokens) + ' tokens in ' : ''}${Math.round(ms)} ms.${cut}`;
  } catch (e) {
    status.textContent = explain(e);
  }
}

/** startClassify prepares the view. */
export function startClassify(model) {
  id('classify-example').addEventListener('click', () => {
    id('classify-text').value = 'It rained all morning, so we stayed at home and watched a film that I would gladly see again.';
    classify(model);
  });
  id('classify-form').addEventListener('submit', (e) => {
    e.preventDefault();
    if (id('classify-text').value) classify(model);
  });
}
