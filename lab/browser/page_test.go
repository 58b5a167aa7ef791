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
				b.faults = append(b.faults, m.Text)
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
	status  = "document.querySelector('.pane .status').textContent"
	written = "document.querySelectorAll('.pane .status')[%d]?.textContent.includes('tokens written')"
	shown   = "document.querySelector('.pane .text').textContent"
	markup  = "<img src=x onerror=alert(1)>"
)

// whole is a text without an end that further bytes may complete to a character.
func whole(text string) string { return strings.TrimRight(text, "\ufffd") }

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
	b.click(".pane .primary")
	b.wait(written, 0)
	second := b.text(shown)
	if !strings.HasPrefix(second, whole(first)) || len(second) <= len(first) {
		t.Errorf("the text went from %q to %q", first, second)
	}

	b.text("((f) => { f.click(); f.click(); return ''; })([...document.querySelectorAll('.pane button')].find((x) => x.textContent === 'Fork'))")
	b.wait("document.querySelectorAll('.pane').length === 2")
	b.click("#both-continue")
	b.wait(written, 0)
	b.wait(written, 1)
	second = whole(second)
	one, two := b.text(shown), b.text("document.querySelectorAll('.pane .text')[1].textContent")
	if !strings.HasPrefix(one, second) || !strings.HasPrefix(two, second) || one == two {
		t.Errorf("forks of %q are %q and %q", second, one, two)
	}
	if n := b.number("document.querySelectorAll('#sessions li a').length"); n != 2 {
		t.Errorf("%v sessions in the list, want 2", n)
	}
	for _, selector := range []string{"#sessions .snip", ".pane h3"} {
		if name := b.text("document.querySelector('%s').textContent", selector); !strings.HasPrefix(name, "The tests <img") {
			t.Errorf("a session has the name %q in %s", name, selector)
		}
	}
	b.isClean()

	if lead := b.text("document.getElementById('write-lead').textContent"); !strings.Contains(lead, "and a restart of the server") || !strings.Contains(lead, "trained on texts of 64 tokens") {
		t.Errorf("the page promises %q", lead)
	}

	// The address of the page changes with the port: tints are kept by origin.
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	s.kill()
	start(t, "--model", model, "--store", store, "--addr", "127.0.0.1:"+port)
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelectorAll('.pane').length === 2")
	b.click("#both-continue")
	b.wait(written, 0)
	b.wait(written, 1)
	if got := b.text(shown); !strings.HasPrefix(got, whole(one)) || len(got) <= len(one) {
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
	b.text("document.querySelector('.pane input').value = '1000000'")
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .text .model')?.textContent.length > 20")
	b.text("(window.item = document.querySelector('#sessions li')) && ''")
	b.wait("document.querySelector('.pane .text .model').textContent.length > 200")
	if b.number("Number(window.item.isConnected)") != 1 {
		t.Error("tokens replace the list of sessions, whose links then take no click")
	}
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(status + ".startsWith('Stopped after ')")
	text, meta := b.text(shown), b.text("document.querySelector('.meta').textContent")
	if !strings.HasPrefix(text, "The tests") || len(text) < 200 || strings.HasPrefix(meta, "9 ") {
		t.Errorf("after the stop: %d bytes, %.40q, %s", len(text), text, meta)
	}
	if stored := b.text("fetch('/v1/sessions/' + location.hash.slice(7) + '?text').then((a) => a.json()).then((s) => s.text)"); stored != text {
		t.Errorf("the page shows %d bytes, the server has %d", len(text), len(stored))
	}
	if by := b.text("[...document.querySelectorAll('.pane .text span')].map((s) => s.className).join()"); by != "you,model" {
		t.Errorf("the parts of the text are by %s", by)
	}
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelector('.pane .text')?.textContent.length > 200")
	if got := b.text(shown); got != text {
		t.Errorf("after the reload %d bytes, were %d", len(got), len(text))
	}
	b.isClean()
}

// Another browser has a text from the server. What it writes is not overlooked.
func TestTextsAreTheServers(t *testing.T) {
	browserPath(t)
	url := start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url
	a, b := browse(t, 1280, 900, "light"), browse(t, 1280, 900, "dark")
	a.open(url)
	a.write(words, "The tests")
	a.click(".pane .primary")
	a.wait(written, 0)
	first := a.text(shown)
	b.open(url)
	b.wait("document.querySelector('#sessions a .snip')?.textContent.startsWith('The tests')")
	b.click("#sessions a")
	b.wait("document.querySelector('.pane .text').textContent.startsWith('The tests')")
	if got := b.text(shown); got != first {
		t.Errorf("another browser shows %q, want %q", got, first)
	}
	b.write(words, " of another browser")
	b.click(".pane .primary")
	b.wait(written, 0)
	second := b.text(shown)
	a.write(words, " late")
	a.click(".pane .primary")
	a.wait(status + ".includes('nothing was sent')")
	if got, left := a.text(shown), a.text("document.querySelector('.pane textarea').value"); got != second || left != " late" {
		t.Errorf("the first browser shows %q and has the words %q, want %q", got, left, second)
	}
	a.click(".pane .primary")
	a.wait(written, 0)
	if got := a.text(shown); !strings.HasPrefix(got, second+" late") {
		t.Errorf("the text is %q", got)
	}
	a.isClean()
	b.isClean()
}

// Undo takes back what the model wrote, then the words before it, which come into the field.
func TestStepsAreTakenBack(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url)
	const undo = ".pane button:nth-of-type(3)"
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait(written, 0)
	first := b.text(shown)
	b.write(words, " are")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .text').textContent.lastIndexOf(' are') > 100 && %s.includes('tokens written')", status)
	for _, want := range []string{first + " are", first, "The tests"} {
		b.text("document.querySelector('.pane .status').textContent = ''")
		b.click(undo)
		b.wait("%s !== ''", status)
		b.wait("document.querySelector('.pane').getAttribute('aria-busy') === 'false'")
		if got := b.text(shown); got != want {
			t.Errorf("the text is %q, want %q", got, want)
		}
	}
	if left := b.text("document.querySelector('.pane textarea').value"); left != " are" {
		t.Errorf("the field has %q", left)
	}
	if b.number("Number(document.querySelector('"+undo+"').disabled)") != 1 {
		t.Error("the beginning can be taken back")
	}
	b.isClean()
}

// A text ends where the model's context does, unless the flag says otherwise.
func TestTextsEndWithTheContext(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(startWithin(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0", "--max-tokens", "40").url)
	if lead := b.text("document.getElementById('write-lead').textContent"); !strings.Contains(lead, "but not a restart") || !strings.Contains(lead, "at most 64 tokens") {
		t.Errorf("the page promises %q", lead)
	}
	b.click(".pane .chip")
	b.wait(written, 0)
	for _, want := range []string{"now as long as it may be", "64 tokens, as many as it may"} {
		b.wait("document.querySelector('.pane').getAttribute('aria-busy') === 'false'")
		if strings.Contains(b.text(status), want) {
			continue
		}
		b.click(".pane .primary")
		b.wait("%s.includes('%s')", status, want)
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
	b.wait(status + ".includes('The server has your words.')")
	if text, left := b.text(shown), b.text("document.querySelector('.pane textarea').value"); !strings.HasSuffix(text, " are") || left != "" {
		t.Errorf("the text is %q, words are %q", text, left)
	}
	before := b.text(shown)
	b.click(".pane .primary")
	b.wait(status + ".includes('The connection broke. 1 tokens came before.')")
	if text := b.text(shown); !strings.HasPrefix(text, whole(before)) || len(text) < len(before)+100 {
		t.Errorf("the text is %q, the server wrote 200 bytes behind %q", text, before)
	}
	b.isClean()
}

// While nothing answers, the page cannot know what the server stored. The next Continue does.
func TestLostConnectionsAreComparedLater(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url)
	said := status + ".includes('%s')"
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
	b.wait(said, "unknown whether the server has your words")
	b.text("window.mend() || ''")
	b.click(".pane .primary")
	b.wait(said, "tokens written")
	if text := b.text(shown); strings.Count(text, " are") != 1 {
		t.Errorf("the text is %q", text)
	}
	b.text("window.lose() || ''")
	b.click(".pane .primary")
	b.wait(said, "unknown how much of it the server has")
	if text := b.text(shown); !strings.HasSuffix(text, "\u2603") {
		t.Errorf("after the loss the text is %q", text)
	}
	b.text("window.mend() || ''")
	b.click(".pane .primary")
	b.wait(said, "tokens written")
	if text := b.text(shown); strings.Contains(text, "\u2603") {
		t.Errorf("the text is %q", text)
	}
	// Changed words are not sent behind those that the server stored.
	const field = "document.querySelector('.pane textarea').value"
	b.text("window.lose() || ''")
	b.write(words, " so")
	b.click(".pane .primary")
	b.wait(said, "unknown whether the server has your words")
	b.text("window.mend() || (" + field + " = ' now')")
	b.click(".pane .primary")
	b.wait(said, "Nothing was sent")
	if text, left := b.text(shown), b.text(field); !strings.HasSuffix(text, " so") || left != " now" {
		t.Errorf("the text is %q, words are %q", text, left)
	}
	// Words that the server did not store survive a reload.
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
	b.wait(said, "unknown whether the server has your words")
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	b.wait("document.querySelector('.pane textarea')?.value === ' now'")
	b.wait(said, "The server does not have your words.")
	b.click(".pane .primary")
	b.wait(said, "tokens written")
	if text := b.text(shown); !strings.Contains(text, " so now") {
		t.Errorf("the text is %q", text)
	}
	b.isClean()
}

// A text that the server has no more is not lost while it is shown.
func TestLostSessionsLeaveTheirText(t *testing.T) {
	browserPath(t)
	model := trainDecoder(t)
	b := browse(t, 1280, 900, "light")
	s := start(t, "--model", model, "--addr", "127.0.0.1:0")
	b.open(s.url)
	b.write(words, "The tests")
	b.click(".pane .primary")
	b.wait(written, 0)
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(b.text(shown)) // as a field has it
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	s.kill()
	start(t, "--model", model, "--addr", "127.0.0.1:"+port)
	b.click(".pane .primary")
	b.wait(status + ".includes('Continue begins it anew.')")
	if got := b.text("document.querySelector('.pane textarea').value"); got != text {
		t.Errorf("the field has %q, want %q", got, text)
	}
	b.click(".pane .primary")
	b.wait(written, 0)
	if got := b.text(shown); !strings.HasPrefix(got, whole(text)) || len(got) <= len(text) {
		t.Errorf("the text went from %q to %q", text, got)
	}
}

// Of a long text the end is shown, from a whole character on.
func TestLongTextsAreShownFromTheirEnd(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url)
	b.text("document.querySelector('.pane textarea').value = 'x' + '\\u{1f600}'.repeat(60000)")
	b.click(".pane .primary")
	b.wait("document.querySelector('.pane .text').textContent.includes('characters before are not shown')")
	b.wait(written, 0)
	if b.number("Number(document.querySelector('.pane .text').textContent.isWellFormed())") != 1 {
		t.Error("a character is cut")
	}
	if n := b.number("document.querySelector('.pane .text').textContent.length"); n < 100000 || n > 100100 {
		t.Errorf("%v characters are shown", n)
	}
	b.isClean()
}

// A conversation is streamed, stopped, answered again, kept by the browser and begun anew.
func TestConversations(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	s := start(t, "--model", trainChat(t), "--addr", "127.0.0.1:0")
	b.open(s.url)
	if got := b.text("document.querySelector('nav a[aria-current]').textContent"); got != "Chat" {
		t.Errorf("a model with a template opens with %q", got)
	}
	b.isReadable("the empty view")
	const turns = "[...document.querySelectorAll('.turn')].map((x) => x.className + ':' + [...x.querySelectorAll('.said')].pop().textContent).join()"
	b.click("#chat-examples .chip")
	b.wait("document.getElementById('chat-status').textContent.includes('a second')")
	b.wait("document.querySelectorAll('.turn').length === 2")
	b.text("document.getElementById('chat-tokens').value = '60000'")
	b.write("#chat-text", markup+kb.Enter)
	b.wait("document.querySelectorAll('.turn').length === 4 && document.querySelectorAll('.turn .said')[3].textContent.length > 40")
	b.click("#chat-stop")
	b.wait("document.querySelectorAll('.turn')[3].textContent.includes('Stopped here.')")
	before := b.text(turns)
	if !strings.Contains(before, "turn user:"+markup) {
		t.Errorf("the conversation is %q", before)
	}
	b.isReadable("the conversation")
	b.do(chromedp.Reload(), chromedp.WaitReady(chromedp.CSS("html[data-ready]")))
	if after := b.text(turns); after != before {
		t.Errorf("after the reload the conversation is %q, was %q", after, before)
	}
	b.text("document.getElementById('chat-tokens').value = '5'")
	b.click("#chat-again")
	b.wait("document.querySelectorAll('.turn')[3].textContent.includes('at its greatest length')")
	// A message without an answer comes back into the field.
	b.text("(window.real = window.fetch, window.fetch = async () => { throw new TypeError('lost'); }, '')")
	b.write("#chat-text", "lost"+kb.Enter)
	b.wait("document.getElementById('chat-text').value.trim() === 'lost' && document.querySelectorAll('.turn').length === 4")
	b.text("(window.fetch = window.real, '')")
	b.click("#chat-new")
	if n := b.number("document.querySelectorAll('.turn').length"); n != 0 {
		t.Errorf("%v turns are left", n)
	}
	// What a model thinks is folded.
	b.text(`(window.fetch = async () => new Response('data: {"choices":[{"delta":{"content":"<think>a plan</think> the answer"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'), '')`)
	b.write("#chat-text", "think"+kb.Enter)
	b.wait("document.querySelector('.thought') !== null && document.getElementById('chat-stop').disabled")
	if got := b.text("document.querySelector('.thought').open + ' ' + [...document.querySelectorAll('.assistant .said')].map((x) => x.textContent).join()"); got != "false a plan,the answer" {
		t.Errorf("the answer is %q", got)
	}
	b.isClean()
}

// The size of a state is shown where it does not grow with the text.
func TestSizeOfFixedStatesIsShown(t *testing.T) {
	browserPath(t)
	growing := train(t, "--task", "bytelm", "--data", filepath.Join(root, "CONTRIBUTING.md"), "--context", "64", "--mechanism", "softmax")
	for model, want := range map[string]bool{growing: false, trainDecoder(t): true} {
		b := browse(t, 1280, 900, "light")
		b.open(start(t, "--model", model, "--addr", "127.0.0.1:0").url)
		b.write(words, "The tests")
		b.click(".pane .primary")
		b.wait(written, 0)
		if is := b.number("Number(document.getElementById('state-card').checkVisibility())") == 1; is != want {
			t.Errorf("%s: the size of the state is shown: %v, want %v", model, is, want)
		}
		b.isClean()
	}
}

func TestDocumentsAreFound(t *testing.T) {
	browserPath(t)
	s := start(t, "--model", filepath.Join(root, "pretrained", "testdata", "tiny"), "--addr", "127.0.0.1:0")
	b := browse(t, 1280, 900, "light")
	b.open(s.url)
	if got := b.text("document.querySelector('nav a[aria-current]').textContent"); got != "Search" {
		t.Errorf("an encoder opens with %q", got)
	}
	if got := b.text("[...document.querySelectorAll('nav a')].filter((a) => a.checkVisibility()).map((a) => a.textContent).join()"); got != "Search,Attention,Speed" {
		t.Errorf("an encoder has the views %s", got)
	}
	b.click("footer a[href='#write']")
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
	b.wait("document.getElementById('index-status').textContent.includes('no-text is no text in UTF-8')")
	b.write("#query", "the dog ran in rain"+kb.Enter)
	b.wait("document.querySelectorAll('#hits li').length === 3")
	if got := b.text("document.querySelector('#hits li').innerText"); !strings.Contains(got, "1.00") || !strings.Contains(got, "the dog ran in rain") || !strings.Contains(got, markup) {
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
	b.click("#clear")
	b.wait("document.getElementById('sample').checkVisibility() && !document.querySelector('#hits li')")
	b.isClean()
}

// Passages that stand out are shown first and alone, with the sentence that is nearest.
func TestSearchIsWithoutNoise(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "light")
	b.open(start(t, "--model", filepath.Join(root, "pretrained", "testdata", "tiny"), "--addr", "127.0.0.1:0").url)
	// The vectors are made here: of three directions, with a little noise.
	b.text(`(() => {
		const real = window.fetch;
		window.fetch = async (path, options) => {
			if (path !== '/v1/embeddings') return real(path, options);
			const data = JSON.parse(options.body).input.map((text, index) => {
				const near = /bees|insects/.test(text) ? 1 : text.includes('pawn') ? 0.2 : 0;
				return {index, embedding: [near, 1 - near, 0.01 * (text.length %% 7)]};
			});
			return new Response(JSON.stringify({data}));
		};
		return '';
	})()`)
	b.click("#sample")
	b.wait("document.querySelector('#hits mark') !== null")
	if got := b.text("[...document.querySelectorAll('#hits li')].map((x) => x.innerText).join('|')"); strings.Count(got, "|") != 0 || !strings.Contains(got, "Honeybees") {
		t.Errorf("the hits are %q", got)
	}
	if got := b.text("document.querySelector('#hits mark').textContent"); got != "Honeybees show each other the way to flowers by a dance." {
		t.Errorf("%q is marked", got)
	}
	if got := b.text("document.getElementById('index-status').textContent"); !strings.HasPrefix(got, "1 of 10 passages stands out.") {
		t.Errorf("the page says %q", got)
	}
	b.click("#more")
	b.wait("document.querySelectorAll('#hits li').length === 10 && document.querySelectorAll('#hits .weak').length === 9")
	b.text("document.getElementById('query').value = 'nothing of the kind'")
	b.click("#search-form .primary")
	b.wait("document.getElementById('index-status').textContent.startsWith('No passage stands out clearly.')")
	b.isReadable("the passages")
	b.isClean()
}

// A model that was not trained to make vectors says so.
func TestVectorsOfDecodersHaveANote(t *testing.T) {
	browserPath(t)
	b := browse(t, 390, 844, "light")
	b.open(start(t, "--model", trainDecoder(t), "--addr", "127.0.0.1:0").url + "/#search")
	b.wait("document.getElementById('search-note').checkVisibility()")
	b.isClean()
}

func TestClassesAreShown(t *testing.T) {
	browserPath(t)
	b := browse(t, 1280, 900, "dark")
	b.open(start(t, "--model", trainClassifier(t), "--addr", "127.0.0.1:0").url + "/#classify")
	b.click("#classify-example")
	b.wait("document.querySelectorAll('#classes tbody tr').length === 2")
	b.text("document.getElementById('classify-text').value = ''")
	b.write("#classify-text", "the sky is blue and the sun is out all day long")
	b.text("(document.querySelector('#classes tbody').replaceChildren(), '')")
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
	b.wait("document.querySelectorAll('#heads button').length === 3") // two heads and their mean
	if n := b.number("document.querySelectorAll('#bigmap path').length"); n < 2 {
		t.Errorf("the map has %v levels of weight", n)
	}
	before := b.text("document.getElementById('tokens-note').textContent")
	b.do(chromedp.Focus(chromedp.CSS("#tokens")), chromedp.KeyEvent(kb.ArrowLeft))
	if after := b.text("document.getElementById('tokens-note').textContent"); after == before {
		t.Errorf("an arrow key leaves the token at %q", before)
	}
	before = b.text("document.getElementById('tokens-note').textContent")
	b.click("#token-before")
	if after := b.text("document.getElementById('tokens-note').textContent"); after == before {
		t.Errorf("a button leaves the token at %q", before)
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
	b.wait("document.getElementById('speed-status').textContent.startsWith('Done')") // without a click
	b.text("document.getElementById('speed-max').value = '512'")
	b.click("#speed-start")
	b.wait("document.getElementById('speed-status').textContent.startsWith('Done: up to 512')")
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
