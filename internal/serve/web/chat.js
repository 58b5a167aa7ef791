// Chat: a conversation in the form of the model's template. This browser keeps it.

import { stream } from './api.js';
import { h, id, count, short, explain, swap, chips, recall, remember } from './dom.js';

const shelf = 'farfield.chat';
const examples = ['Tell me a story about a dog and a boat.', 'Why is the sky blue?', 'Name three trees and say where they grow.'];

let model, messages = [], stop = null; // messages: [{role, content, note}]

// split parts the thinking of a model, which some templates ask for, from its answer.
function split(text) {
  const end = text.indexOf('</think>');
  if (end < 0 && !/^\s*<think>/.test(text)) return ['', text];
  return [text.slice(0, end < 0 ? text.length : end).replace(/^\s*<think>/, '').trim(), end < 0 ? '' : text.slice(end + 8).trimStart()];
}

function bubble(m, isOpen) {
  const [thought, answer] = m.role === 'assistant' ? split(m.content) : ['', m.content];
  return h('article', { class: 'turn ' + m.role }, h('h3', {}, m.role === 'user' ? 'You' : model.id),
    thought && h('details', { class: 'thought', open: isOpen }, h('summary', {}, 'Thinking'), h('p', { class: 'said' }, thought)),
    h('p', { class: 'said' }, answer), m.note && h('p', { class: 'fine' }, m.note));
}

const drawn = new WeakMap(); // message → {node, content, note}

// draw shows the messages. Those that did not change keep their nodes, which a screen reader then does not read again.
function draw() {
  const log = id('chat-log'), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  const nodes = messages.map((m) => {
    const old = drawn.get(m);
    if (old && old.content === m.content && old.note === m.note) return old.node;
    const node = bubble(m, old?.node.querySelector('details')?.open);
    old?.node.replaceWith(node);
    drawn.set(m, { node, content: m.content, note: m.note });
    return node;
  });
  if (!nodes.length) nodes.push(h('p', { class: 'empty' }, 'Write a message, or take an example.'));
  for (const old of [...log.children]) if (!nodes.includes(old)) old.remove();
  for (const node of nodes) if (node.parentNode !== log) log.append(node);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  id('chat-examples').hidden = messages.length > 0;
  id('chat-again').disabled = !!stop || !messages.length;
  id('chat-new').disabled = !messages.length;
}

const last = () => messages[messages.length - 1];

// answer asks for the next message of the model.
async function answer() {
  const system = id('chat-system').value.trim(), tokens = Number(id('chat-tokens').value);
  const request = {
    messages: [...(system ? [{ role: 'system', content: system }] : []), ...messages.map(({ role, content }) => ({ role, content }))],
    model: model.id, temperature: Number(id('chat-temperature').value), stream: true, stream_options: { include_usage: true },
  };
  if (tokens) request.max_tokens = tokens;
  const own = new AbortController(), said = { role: 'assistant', content: '' };
  stop = own;
  swap(id('chat-stop'), id('chat-send'));
  const status = id('chat-status'), talk = messages;
  status.textContent = 'Reading…';
  id('chat-log').setAttribute('aria-busy', 'true');
  const show = () => { if (messages === talk) draw(); };
  let frame = 0, usage = null, reason = '', note = '';
  const began = performance.now();
  talk.push(said);
  show();
  id('chat-log').scrollTop = id('chat-log').scrollHeight;
  try {
    await stream('/v1/chat/completions', request, (event) => {
      usage = event.usage || usage;
      const [choice] = event.choices;
      if (!choice) return;
      reason = choice.finish_reason || reason;
      said.content += choice.delta.content || '';
      if (!frame) frame = requestAnimationFrame(() => {
        frame = 0;
        show();
      });
    }, own.signal);
    if (usage) note = `${count(usage.completion_tokens)} tokens, ${short((1000 * usage.completion_tokens) / (performance.now() - began))} a second.`;
    if (reason === 'length') said.note = 'Cut here, at its greatest length.';
  } catch (e) {
    note = explain(e);
    if (said.content) said.note = e.name === 'AbortError' ? 'Stopped here.' : 'Broke off here.';
  }
  cancelAnimationFrame(frame);
  stop = null;
  swap(id('chat-send'), id('chat-stop'));
  id('chat-log').setAttribute('aria-busy', 'false');
  if (!said.content) talk.pop();
  if (messages === talk) {
    remember(shelf, messages);
    status.textContent = note;
  }
  show();
}

function send(text) {
  if (stop || !text.trim()) return;
  if (last()?.role === 'user') messages.pop(); // it had no answer
  messages.push({ role: 'user', content: text });
  id('chat-text').value = '';
  remember(shelf, messages);
  answer().then(() => {
    if (last()?.role !== 'user' || id('chat-text').value.trim()) return;
    id('chat-text').value = messages.pop().content; // it had no answer, and can be sent again
    remember(shelf, messages);
    draw();
  });
}

/** startChat prepares the view. */
export function startChat(m) {
  model = m;
  const kept = recall(shelf, []);
  if (Array.isArray(kept)) messages = kept.filter((x) => typeof x?.role === 'string' && typeof x.content === 'string');
  id('chat-tokens').max = m.farfield.max_tokens;
  chips(id('chat-examples'), examples, send);
  id('chat-form').addEventListener('submit', (e) => {
    e.preventDefault();
    send(id('chat-text').value);
  });
  id('chat-text').addEventListener('keydown', (e) => {
    const isPlain = !e.shiftKey && !e.isComposing && !matchMedia('(pointer: coarse)').matches;
    if (e.key !== 'Enter' || !(isPlain || e.ctrlKey || e.metaKey)) return;
    e.preventDefault();
    id('chat-form').requestSubmit();
  });
  id('view-chat').addEventListener('keydown', (e) => { if (e.key === 'Escape') stop?.abort(); });
  id('chat-stop').addEventListener('click', () => stop?.abort());
  id('chat-again').addEventListener('click', () => {
    if (stop) return;
    if (last().role === 'assistant') messages.pop();
    answer();
  });
  id('chat-new').addEventListener('click', () => {
    stop?.abort();
    messages = [];
    remember(shelf, messages);
    id('chat-status').textContent = '';
    draw();
    id('chat-text').focus();
  });
  draw();
}
