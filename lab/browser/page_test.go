package browser

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A tab is a page in a browser.
type tab struct {
	*testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // errors of the console, exceptions, breaches of the policy
}

// browse opens a tab of a width and a colour scheme.
func browse(t *testing.T, width, height int64, scheme string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browserPath(t)), chromedp.NoSandbox)
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx}
	// The browser lives as long as the context of its first action.
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, height)); err != nil {
		t.Fatal(err)
	}
	b.choose(scheme)
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == "error" || m.Type == chromedp.ConsoleException {
				b.mu.Lock()
				if !strings.Contains(m.Text, "409 (Conflict)") { // the page asks again while a session is busy
					b.faults = append(b.faults, m.Text)
				}
				b.mu.Unlock()
			}
		}
	}()
	return b
}

func (b *tab) choose(scheme string) {
	b.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// open loads an address of the server and waits for the page to be ready.
func (b *tab) open(url string) {
	b.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
}

// text runs an expression of JavaScript that gives a string.
func (b *tab) text(expression string, values ...any) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(expression, values...), chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return s
}

// number runs an expression of JavaScript that gives a number.
func (b *tab) number(expression string) float64 {
	b.Helper()
	n, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return n
}

// wait waits until an expression of JavaScript is true. Its failure shows the page's text.
func (b *tab) wait(expression string, values ...any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](fmt.Sprintf(expression, values...))); err != nil {
		b.Fatalf("%s: %v; the page says: %s", fmt.Sprintf(expression, values...), err, b.text("document.querySelector('main').innerText"))
	}
}

func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

func (b *tab) write(selector, text string) {
	b.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// isReadable fails where a control has no name or a text has too little contrast.
func (b *tab) isReadable(what string) {
	b.Helper()
	if list := b.text(unnamed) + b.text(pale); list != "" {
		b.Errorf("%s:\n%s", what, list)
	}
}

// isClean fails where the console has an error.
func (b *tab) isClean() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.Errorf("the console has %d errors: %s", len(b.faults), strings.Join(b.faults, "; "))
	}
}

const (
	words   = ".pane textarea"
	written = "document.querySelectorAll('.pane .controls .fine')[%d]?.textContent.includes('tokens written')"
	shown   = "document.querySelector('.pane .text').textContent"
	markup  = "<img src=x onerror=alert(1)>"
)

// The walk of a visitor: write, reload, continue, fork, compare, and find all of it
// after a server that was killed.
func TestSessionsSurviveReloadAndKill(t *testing.T) {
	browserPath(t)
	model, store := trainDecoder(t), t.TempDir()
	s := start(t, "--model", model, "--store", store, "--addr", "127.0.0.1:0")
	b := browse(t, 1280, 900, "light")
	b.open(s.url)

	// By keyboard alone: the first tab stop skips the head, Ctrl+Enter continues.
	b.do(chromedp.KeyEvent(kb.Tab))
	if got := b.text("document.activeElement.className"); got != "skip" {
		t.Errorf("the first tab stop is %q, want the skip link", got)
	}
	b.write(words, "The tests "+markup)
	b.do(chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(chromedp.ModifierCtrl)))
	b.wait(written, 0)
	first := b.text(shown)
	if !strings.HasPrefix(first, "The tests "+markup) || len(first) < 30 {
		t.Errorf("the text is %q", first)
	}
	if n := b.number("document.images.length"); n != 0 {
		t.Errorf("a text became %v images", n)
	}

	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelector('.pane .text')?.textContent.length > 0")
	if got := b.text(shown); got != first {
		t.Errorf("after the reload the text is %q, was %q", got, first)
	}
	b.text("(() => { const kept = JSON.parse(localStorage['farfield.texts']); kept.other = {parts: [], points: [], at: 1}; const text = kept[location.hash.slice(7)]; text.parts.push({by: 'you', text: ' of another tab'}); text.at = Date.now(); return localStorage['farfield.texts'] = JSON.stringify(kept); })()")
	b.click(".pane .primary")
	b.wait(written, 0)
	if got := b.text("localStorage['farfield.texts']"); !strings.Contains(got, `"other"`) {
		t.Errorf("the text of another tab is gone: %s", got)
	}
	b.text("(() => { const kept = JSON.parse(localStorage['farfield.texts']), text = kept[location.hash.slice(7)]; text.parts.push({by: 'you', text: ' of a third'}); text.at = Date.now() + 1; localStorage['farfield.texts'] = JSON.stringify(kept); dispatchEvent(new StorageEvent('storage')); return ''; })()")
	second := b.text(shown)
	if !strings.HasSuffix(second, " of a third") {
		t.Errorf("the page shows %q behind another tab", second)
	}
	if !strings.HasPrefix(second, first+" of another tab") || len(second) <= len(first) {
		t.Errorf("the text went from %q to %q", first, second)
	}

	b.text("((f) => { f.click(); f.click(); return ''; })([...document.querySelectorAll('.pane button')].find((x) => x.textContent === 'Fork'))")
	b.wait("document.querySelectorAll('.pane').length === 2")
	b.click("#both-continue")
	b.wait(written, 0)
	b.wait(written, 1)
	texts := b.text("[...document.querySelectorAll('.pane .text')].map((x) => x.textContent).join('\\u0000')")
	one, two, _ := strings.Cut(texts, "\x00")
	if !strings.HasPrefix(one, second) || !strings.HasPrefix(two, second) || one == two {
		t.Errorf("forks of %q are %q and %q", second, one, two)
	}
	if n := b.number("document.querySelectorAll('#sessions li a').length"); n != 2 {
		t.Errorf("%v sessions in the list, want 2", n)
	}
	b.isClean()

	// The address of the page changes with the port: the texts are kept by origin.
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	s.kill()
	start(t, "--model", model, "--store", store, "--addr", "127.0.0.1:"+port)
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelectorAll('.pane').length === 2")
	b.click("#both-continue")
	b.wait(written, 0)
	b.wait(written, 1)
	if got := b.text(shown); !strings.HasPrefix(got, one) || len(got) <= len(one) {
		t.Errorf("after the kill the text went from %q to %q", one, got)
	}
	b.isClean()
}

// What a stopped stream showed stays, on the page and in the session.
func TestStoppedTextIsKept(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0", "--max-tokens", "1000000").url)
	// A text that takes many seconds, although the model is tiny.
	b.text("((e) => { e.max = 1000000; return e.value = '1000000'; })(document.querySelector('.pane input'))")
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .text .model')?.textContent.length > 20")
	b.text("(window.item = document.querySelector('#sessions li')) && ''")
	b.wait("document.querySelector('.pane .text .model').textContent.length > 200")
	if b.number("Number(window.item.isConnected)") != 1 {
		t.Error("tokens replace the list of sessions, whose links then take no click")
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait("document.querySelector('.pane .controls .fine').textContent.startsWith('Stopped.')")
	text, meta := b.text(shown), b.text("document.querySelector('.meta').textContent")
	if !strings.HasPrefix(text, "The tests") || len(text) < 200 || strings.HasPrefix(meta, "9 tokens") {
		t.Errorf("after the stop: %d bytes, %.40q, %s", len(text), text, meta)
	}
	b.isClean()
}

// The server stored what a lost answer said.
func TestLostAnswersAreNoticed(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url)
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait(written, 0)
	b.text(`(() => {
		const real = window.fetch;
		window.fetch = async (path, options) => {
			const answer = await real(path, options);
			if (path.endsWith('/append')) throw new TypeError('lost');
			if (!path.endsWith('/generate')) return answer;
			const text = await answer.text();
			return new Response(text.slice(0, text.indexOf('\n\n') + 2));
		};
		return '';
	})()`)
	b.write(words, " are")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .controls .fine').textContent.includes('The server stored your words.')")
	if text, left := b.text(shown), b.text("document.querySelector('.pane textarea').value"); !strings.HasSuffix(text, " are") || left != "" {
		t.Errorf("the text is %q, words are %q", text, left)
	}
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .controls .fine').textContent.includes('The server stored 63 tokens more than are shown.')")
	b.isClean()
}

// While nothing answers, the page cannot know what the server stored. The next Continue does.
func TestLostConnectionsAreComparedLater(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url)
	status := "document.querySelector('.pane .controls .fine').textContent.includes('%s')"
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait(written, 0)
	b.text(`(() => {
		const real = window.fetch;
		let isLost = false;
		window.mend = () => { window.fetch = real; };
		window.fetch = async (path, options) => {
			if (isLost) throw new TypeError('lost');
			if (path.endsWith('/append')) await real(path, options);
			isLost = path.endsWith('/append') || path.endsWith('/generate');
			if (path.endsWith('/append')) throw new TypeError('lost');
			return isLost ? new Response('data: {"id":5,"text":"\u2603"}\n\n') : real(path, options);
		};
		window.lose = ((lossy) => () => { isLost = false; window.fetch = lossy; })(window.fetch);
		return '';
	})()`)
	b.write(words, " are")
	b.click(".pane .primary")
	b.wait(status, "unknown whether the server stored your words")
	b.text("window.mend() || ''")
	b.click(".pane .primary")
	b.wait(status, "The server stored your words.")
	b.wait("document.querySelector('.meta').textContent.startsWith('141 tokens')") // 9 + 64 + 4 + 64
	if text := b.text(shown); !strings.Contains(text, " are") {
		t.Errorf("the text is %q", text)
	}
	b.text("window.lose() || ''")
	b.click(".pane .primary")
	b.wait(status, "unknown whether the server stored the new text")
	if text := b.text(shown); !strings.HasSuffix(text, "\u2603") {
		t.Errorf("after the loss the text is %q", text)
	}
	b.text("window.mend() || ''")
	b.click(".pane .primary")
	b.wait(status, "What was not stored is taken away.")
	if text := b.text(shown); strings.Contains(text, "\u2603") {
		t.Errorf("the text is %q", text)
	}
	// Changed words are not sent behind those that the server stored.
	const field = "document.querySelector('.pane textarea').value"
	b.text("window.lose() || ''")
	b.write(words, " so")
	b.click(".pane .primary")
	b.wait(status, "unknown whether the server stored your words")
	b.text("window.mend() || (" + field + " = ' now')")
	b.click(".pane .primary")
	b.wait(status, "Nothing was sent")
	if text, left := b.text(shown), b.text(field); !strings.HasSuffix(text, " so") || left != " now" {
		t.Errorf("the text is %q, words are %q", text, left)
	}
	// Words that the server did not store survive a reload, and an empty field.
	b.text(`(() => {
		const real = window.fetch;
		let isLost = false;
		window.fetch = async (path, options) => {
			isLost ||= path.endsWith('/append');
			if (isLost) throw new TypeError('lost');
			return real(path, options);
		};
		return '';
	})()`)
	b.click(".pane .primary")
	b.wait(status, "unknown whether the server stored your words")
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelector('.pane textarea')?.value === ' now'")
	b.text(field + " = ''")
	b.click(".pane .primary")
	b.wait(status, "The server did not store your words.")
	if left := b.text(field); left != " now" {
		t.Errorf("words are %q", left)
	}
	b.click(".pane .primary")
	b.wait(status, "tokens written")
	if text := b.text(shown); !strings.Contains(text, " so now") {
		t.Errorf("the text is %q", text)
	}
	// A text beyond its bound loses its front, at a character.
	b.text("(() => { const kept = JSON.parse(localStorage['farfield.texts']), text = kept[location.hash.slice(7)]; text.parts = [{by: 'you', text: '\\u{1f600}'.repeat(60000)}]; text.at = Date.now() + 1; localStorage['farfield.texts'] = JSON.stringify(kept); return ''; })()")
	b.write(words, "x")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .text').textContent.includes('characters are not kept here')")
	b.wait(status, "tokens written")
	if b.number("Number(document.querySelector('.pane .text').textContent.isWellFormed())") != 1 {
		t.Error("a character is cut")
	}
	if n := b.number("document.querySelector('.pane .text').textContent.length"); n < 100000 || n > 100100 {
		t.Errorf("%v characters are kept", n)
	}
	b.isClean()
}

func TestGrowingStatesAreNotEstimated(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	model := train(t, "--task", "bytelm", "--data", filepath.Join(root, "CONTRIBUTING.md"), "--context", "64", "--mechanism", "softmax")
	b.open(start(t, "--model", model, "--addr", "127.0.0.1:0").url)
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait(written, 0)
	if b.number("Number(document.getElementById('state-table').hidden)") != 1 {
		t.Errorf("sizes of longer texts: %s", b.text("document.getElementById('state-table').innerText"))
	}
	b.isClean()
}

func TestDocumentsAreFound(t *testing.T) {
	browserPath(t)
	s := start(t, "--model", filepath.Join(root, "pretrained", "testdata", "tiny"), "--addr", "127.0.0.1:0")
	b := browse(t, 1280, 900, "light")
	b.open(s.url)
	if got := b.text("document.querySelector('nav a[aria-current]').textContent"); got != "Search" {
		t.Errorf("an encoder opens with %q", got)
	}
	b.click("nav a[data-view=write]")
	b.wait("!document.querySelector('#view-write [data-cannot]').hidden")
	b.click("nav a[data-view=search]")
	dropped := `(async () => {
		const files = new DataTransfer();
		files.items.add(new File(['the cat sat on a mat\n\n' + 'x'.repeat(690) + '\n\nthe dog ran in rain'], %q));
		files.items.add(new File([new Uint8Array([255, 254, 0])], 'no-text'));
		document.getElementById('drop').dispatchEvent(new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}));
		return '';
	})()`
	b.text(dropped, markup)
	b.wait("document.getElementById('index-status').textContent.includes('no-text is no UTF-8 text')")
	b.write("#query", "the dog ran in rain"+kb.Enter)
	b.wait("document.querySelectorAll('#hits li').length === 3")
	if got := b.text("document.querySelector('#hits li').innerText"); !strings.Contains(got, "1.000") || !strings.Contains(got, "the dog ran in rain") || !strings.Contains(got, markup) {
		t.Errorf("the nearest passage is %q", got)
	}
	if n := b.number("document.images.length"); n != 0 {
		t.Errorf("the name of a file became %v images", n)
	}
	// Files that are dropped while others are embedded follow them.
	b.text(`(() => {
		for (const name of ['one', 'two']) {
			const files = new DataTransfer();
			files.items.add(new File(['the cat ran'], name));
			document.getElementById('drop').dispatchEvent(new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true}));
		}
		return '';
	})()`)
	b.wait("document.getElementById('index-status').textContent.startsWith('5 passages are ready')")
	b.isClean()
}

func TestClassesAreShown(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "dark")
	b.open(start(t, "--model", trainClassifier(t), "--addr", "127.0.0.1:0").url + "/#classify")
	b.write("#classify-text", "the sky is blue and the sun is out all day long")
	b.click("#classify-form .primary")
	b.wait("document.querySelectorAll('#classes tbody tr').length === 2")
	if got := b.text("document.querySelector('#view-classify').innerText"); !strings.Contains(got, "<i>sun</i>") || !strings.Contains(got, "read a part of it") {
		t.Errorf("the classes are %q", got)
	}
	b.isClean()
}

func TestMapsAreDrawn(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url + "/#maps")
	b.click("#maps-form .primary")
	b.wait("document.querySelectorAll('#heads button').length === 3") // two heads and their mean
	if n := b.number("document.querySelectorAll('#bigmap path').length"); n < 2 {
		t.Errorf("the map has %v levels of weight", n)
	}
	before := b.text("document.getElementById('tokens-note').textContent")
	b.do(chromedp.Focus(chromedp.CSS("#tokens")), chromedp.KeyEvent(kb.ArrowLeft))
	if after := b.text("document.getElementById('tokens-note').textContent"); after == before {
		t.Errorf("an arrow key leaves the token at %q", before)
	}
	b.click("#heads button:nth-child(3)")
	b.wait("document.getElementById('bigmap-caption').textContent.includes('head 2')")
	if n := b.number("document.querySelectorAll('#shares tbody tr').length"); n != 2 {
		t.Errorf("shares of %v heads, want 2", n)
	}
	b.isReadable("the maps")
	b.isClean()
}

func TestTimeOverLengthIsMeasured(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url + "/#speed")
	b.text("document.getElementById('speed-max').value = '512'")
	b.click("#speed-start")
	b.wait("document.getElementById('speed-status').textContent.startsWith('Done')")
	for _, chart := range []string{"prefill", "decode"} {
		if n := b.number("document.querySelectorAll('#" + chart + "-chart circle').length"); n != 5 {
			t.Errorf("%s: %v points, want 5 from 32 to 512", chart, n)
		}
	}
	if n := b.number("document.querySelectorAll('#sessions li a').length"); n != 0 {
		t.Errorf("%v sessions are left", n)
	}
	b.isReadable("the charts")
	b.isClean()
}

func TestTimeOfShortTextsIsMeasured(t *testing.T) {
	browserPath(t)
	learned := train(t, "--task", "bytelm", "--data", filepath.Join(root, "CONTRIBUTING.md"), "--context", "32", "--positions", "learned")
	for model, want := range map[string]string{learned: "Done: up to 16 tokens.", trainClassifier(t): "The model cuts texts"} {
		b := browse(t, 1280, 900, "light")
		b.open(start(t, "--model", model, "--addr", "127.0.0.1:0").url + "/#speed")
		b.click("#speed-start")
		b.wait("document.getElementById('speed-status').textContent.startsWith('%s')", want)
		b.isClean()
	}
}

// startWithKey starts a server that asks for the key a-key-of-this-test.
func startWithKey(t *testing.T) *server {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "keys")
	writeFile(t, keys, "a-key-of-this-test\n")
	return start(t, "--model", filepath.Join(root, "pretrained", "testdata", "tiny"), "--keys", keys, "--addr", "127.0.0.1:0")
}

func TestKeyIsAskedFor(t *testing.T) {
	browserPath(t)
	s := startWithKey(t)
	b := browse(t, 1280, 900, "light")
	b.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS("#key-dialog")))
	for _, wrong := range []string{"no-header-carries-\u0141", "wrong"} {
		b.write("#key", wrong+kb.Enter)
		b.wait("document.getElementById('key-note').textContent.includes('does not know') && document.getElementById('key').value === ''")
	}
	b.write("#key", "a-key-of-this-test"+kb.Enter)
	b.do(chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]"))) // the tab keeps the key
}

func TestPageOpensWithoutSiteData(t *testing.T) {
	browserPath(t)
	s := startWithKey(t)
	b := browse(t, 1280, 900, "light")
	blocked := "for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, {get() { throw new DOMException('', 'SecurityError'); }});"
	if _, err := chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: blocked}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(s.url), chromedp.WaitVisible(chromedp.CSS("#key-dialog")))
	b.write("#key", "a-key-of-this-test"+kb.Enter)
	b.do(chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
}
