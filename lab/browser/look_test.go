package browser

import (
	"os"
	"testing"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// unnamed lists what a screen reader could not name, what a finger could not hit, and what leaves the width.
const unnamed = `(() => {
	const list = [];
	const label = (e) => e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.labels?.length || e.textContent.trim();
	for (const e of document.querySelectorAll('main button, main input, main textarea, main select, main a, [role=region], [role=listbox], svg[role=img]')) {
		if (e.checkVisibility() && !label(e)) list.push('no name: ' + e.outerHTML.slice(0, 90));
	}
	const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
	for (const i of ids) if (ids.indexOf(i) !== ids.lastIndexOf(i)) list.push('id twice: ' + i);
	for (const e of document.querySelectorAll('[aria-labelledby]')) {
		if (!document.getElementById(e.getAttribute('aria-labelledby'))) list.push('labelled by nothing: ' + e.outerHTML.slice(0, 90));
	}
	const levels = [...document.querySelectorAll('h1, h2, h3')].filter((e) => e.checkVisibility()).map((e) => Number(e.tagName[1]));
	levels.forEach((l, i) => { if (i && l > levels[i - 1] + 1) list.push('heading h' + l + ' follows h' + levels[i - 1]); });
	for (const e of document.querySelectorAll('a, button, input, textarea, select, summary')) {
		const box = (e.type === 'file' ? e.parentElement : e).getBoundingClientRect();
		if (e.checkVisibility() && !e.closest('.skip') && (box.height < 43.5 || box.width < 43.5)) list.push('a target of ' + Math.round(box.width) + ' by ' + Math.round(box.height) + ' pixels: ' + e.outerHTML.slice(0, 90));
	}
	const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
	if (wide > 0) list.push(wide + ' pixels wider than the window');
	return list.join('\n');
})()`

// pale lists texts whose contrast with their ground is below 4.5 (WCAG 2.2, 1.4.3). What
// is off (a view, a button) has no bound there.
const pale = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
	const mix = (top, below) => [0, 1, 2].map((i) => top[3] * top[i] + (1 - top[3]) * below[i]).concat(1);
	const ground = (e) => {
		const layers = [];
		for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
		return layers.reverse().reduce((below, top) => mix(top, below), [255, 255, 255, 1]);
	};
	const light = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
		const v = c[i] / 255;
		return sum + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
	}, 0);
	const list = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest('.off, :disabled, .unseen, .skip, noscript, script, option')) continue;
		const style = getComputedStyle(e), below = ground(e);
		let alpha = 1;
		for (let p = e; p; p = p.parentElement) alpha *= Number(getComputedStyle(p).opacity);
		const ink = parse(e instanceof SVGElement ? style.fill : style.color);
		ink[3] *= alpha;
		const [a, b] = [light(mix(ink, below)), light(below)];
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) list.add(contrast.toFixed(2) + ': ' + (e.className.baseVal ?? e.className) + ' ' + walk.currentNode.data.trim().slice(0, 40));
	}
	return [...list].join('\n');
})()`

// Every view, at the width of a small phone and of a desk, light and dark.
func TestViewsAreReadable(t *testing.T) {
	browserPath(t)
	s := start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0")
	for _, width := range []int64{320, 1280} {
		b := browse(t, width, 900, "light")
		b.open(s.url)
		b.write(words, "The tests")
		b.click(".pane .primary")
		b.wait(written, 0)
		for _, view := range []string{"chat", "write", "search", "classify", "maps", "speed"} {
			b.text("location.hash = '%s'", view)
			b.wait("!document.getElementById('view-%s').hidden", view)
			if list := b.text(unnamed); list != "" {
				t.Errorf("%s at %d pixels:\n%s", view, width, list)
			}
			for _, scheme := range []string{"light", "dark"} {
				b.choose(scheme)
				if list := b.text(pale); list != "" {
					t.Errorf("%s, %s:\n%s", view, scheme, list)
				}
			}
		}
		b.isClean()
	}
}
