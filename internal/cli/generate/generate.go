// Package generate implements the verb generate: texts and images drawn from a model.
package generate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/model"
)

// Command is the verb generate: a model continues a text, or draws images.
type Command struct {
	Model      string `required:"" placeholder:"DIR" help:"Folder of a run, a checkpoint or a published model."`
	Prompt     string `xor:"prompt" placeholder:"TEXT" help:"Text to continue (a line break)."`
	PromptFile string `xor:"prompt" placeholder:"FILE" help:"File with the text to continue; - is standard input."`
	IDs        string `name:"ids" xor:"prompt" placeholder:"FILE" help:".npz with input_ids [1,N] to continue; prints token ids."`
	Tokens     *int   `placeholder:"N" help:"Tokens to generate (250)."`

	Temperature *float64 `placeholder:"X" help:"Temperature; 0: the most likely token (${temperature})."`
	TopK        *int     `placeholder:"K" help:"Sample from the K most likely tokens; 0: all (0)."`
	TopP        *float64 `placeholder:"P" help:"Sample from likely tokens of total P; 0: the likeliest (1)."`
	Seed        *uint64  `placeholder:"N" help:"Seed of the samples (1)."`

	Beyond bool   `name:"beyond-context" help:"Continue a text longer than the trained context in one state, not in windows."`
	Save   string `placeholder:"FILE" help:"Save the state of the text to a file."`
	Resume string `placeholder:"FILE" help:"Continue a saved text, to the same bits, after the prompt."`
	Time   bool   `help:"Print times of the first and last tokens, and memory."`
	JSON   bool   `name:"json" help:"Print text, times and memory as JSON."`

	flags.Opening
	drawFlags
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "At a temperature below 1 likely tokens are preferred. A text that becomes longer than the trained context is read in windows, because few models predict well beyond it: when a window is full, the next one begins with its last half. With learned positions the text ends there. " +
		"--ids also reads attention_mask [1,N]: tokens with 0, such as padding on the left, are left out and do not count as positions. The output is the N new tokens; --json prints them as {\"ids\":[…]}. End tokens do not stop the text.\n\n" +
		"The prompt or the ids of an encoder-decoder are its source. The target begins with decoder_start_token_id, and its text ends with an end token.\n\n" +
		"A model of images draws them to --out. --complete reads a PNG or JPEG of the model's size; the image itself comes first. " +
		"--way recompute runs the model over the image so far, cache keeps keys and values (mechanisms that do not stream), state keeps a state of fixed size (mechanisms that do)." + flags.JoinExamples(
		`farfield generate --model run/001 --prompt "Dear "`,
		"farfield generate --model run/001 --tokens 50 --temperature 0 --json",
		"farfield generate --model SmolLM --ids ids.npz --tokens 40 --temperature 0 --json",
		"farfield generate --model run/001 --save text.state",
		"farfield generate --model run/001 --resume text.state --save text.state",
		"farfield generate --model run/digits --images 16 --out digits.png",
	)
}

const (
	// defaultTokens is the number of tokens to generate without --tokens.
	defaultTokens = 250
	// maxTokens bounds --tokens, so that the length of a text fits an int64.
	maxTokens = 1 << 40
)

// tokenCount returns the number of tokens to generate.
func (c *Command) tokenCount() int {
	if c.Tokens == nil {
		return defaultTokens
	}
	return *c.Tokens
}

// Run generates text or images. It returns an error if flags, model or prompt are
// invalid or the output fails.
func (c *Command) Run(e *env.Env) error {
	if given, err := c.drawFlags.wantsImages(); err != nil || given {
		if err != nil {
			return err
		}
		return c.draw(e)
	}
	tokens := c.tokenCount()
	if tokens < 0 {
		return env.InputErrorf("--tokens: %d is negative", tokens)
	}
	if int64(tokens) > maxTokens {
		return env.InputErrorf("--tokens: %d is more than %d", tokens, int64(maxTokens))
	}
	if err := env.CheckOutput(c.Save, append(runs.ModelFiles(c.Model), c.PromptFile, c.IDs)...); err != nil {
		return env.InputErrorf("--save: %w", err)
	}
	if c.Save != "" {
		l, err := lock.LockFile(c.Save)
		if err != nil {
			return env.InputErrorf("--save: %w", err)
		}
		defer l.Release()
	}
	m, err := c.load()
	if err != nil {
		return env.MarkInput(err)
	}
	var g *generate.Generator
	var ends []int32 // of a target, whose text they end
	var ids []int32  // of --ids
	if m.Config().Kind == model.EncoderDecoder {
		if g, ids, err = c.startTarget(e, m); err != nil {
			return err
		}
		tokens, ends = tokens-len(ids), m.EndTokens()
	} else {
		if g, err = c.start(m); err != nil {
			return env.MarkInput(err)
		}
		if err := c.prefill(e, g, m); err != nil {
			return err
		}
	}
	runs.PrintRules(e.Notes(), m)
	window := 0 // tokens of the windows of a text beyond the trained context
	switch n, context := g.Tokens()+int64(tokens), int64(m.Config().ContextWindow()); {
	case context == 0 || n <= context:
	case g.Window() > 0:
		window = g.Window()
		fmt.Fprintf(e.Notes(), "the text will have %d tokens: it is continued in windows of %d, the trained context of the model\n", n, window)
	default:
		fmt.Fprintf(e.Notes(), "the text will have %d tokens: the model was trained with %d\n", n, context)
	}

	text := newTextOutput(e.Stdout, c.JSON)
	clock := newTokenClock(c.tokenCount())
	var bytes []byte
	err = g.Generate(e.Context, tokens, func(t int32) (err error) {
		clock.tick(g)
		if c.IDs != "" {
			ids = append(ids, t)
			return nil
		}
		if slices.Contains(ends, t) {
			return errTargetEnd
		}
		if bytes, err = m.Bytes(bytes[:0], t); err != nil {
			return err
		}
		_, err = text.Write(bytes)
		return err
	})
	stopped := e.Context.Err() != nil && errors.Is(err, e.Context.Err())
	if err != nil && !stopped && !errors.Is(err, errTargetEnd) {
		return err
	}
	if err := text.end(); err != nil {
		return err
	}
	if c.Save != "" {
		if err := g.Save(c.Save); err != nil {
			return err
		}
	}
	times := clock.times(g)
	if c.Time {
		times.print(e.Stderr)
	}
	var printErr error
	switch {
	case c.IDs != "":
		printErr = c.printIDs(e, ids)
	case c.JSON:
		printErr = display.PrintJSON(e.Stdout, Report{text.text(), c.Precision.Precision, g.Tokens(), window, times})
	}
	if printErr != nil || !stopped {
		return printErr
	}
	if c.Save != "" {
		err = env.Interruption{Err: err, Text: fmt.Sprintf("stopped; farfield generate --model %s --resume %s continues", display.QuoteWord(c.Model), display.QuoteWord(c.Save))}
	}
	return err
}

// start returns the generator of an empty text, or of one that is resumed.
func (c *Command) start(m *inference.Model) (*generate.Generator, error) {
	if c.Resume != "" {
		if c.Beyond {
			return nil, errors.New("--beyond-context: a text that is resumed goes on as it began")
		}
		g, err := generate.LoadGenerator(c.Resume, m.Model())
		if err != nil {
			return nil, err
		}
		return g, g.SetSampling(c.sampling(g.Sampling()))
	}
	return m.NewText(inference.TextOptions{Sampling: c.sampling(defaultSampling), IsWhole: c.Beyond, OfIDs: c.IDs != ""})
}

// defaultSampling is the sampling without flags.
var defaultSampling = generate.Sampling{Temperature: inference.DefaultTemperature, Seed: 1}

// sampling returns s with the values of flags.
func (c *Command) sampling(s generate.Sampling) generate.Sampling {
	var given []string
	flags.OverrideValue(&given, "--temperature", &s.Temperature, c.Temperature)
	flags.OverrideValue(&given, "--top-k", &s.TopK, c.TopK)
	flags.OverrideValue(&given, "--top-p", &s.TopP, c.TopP)
	if c.TopP != nil && *c.TopP == 0 { // of Sampling: all tokens
		s.TopP = math.SmallestNonzeroFloat64
	}
	flags.OverrideValue(&given, "--seed", &s.Seed, c.Seed)
	return s
}

// Report is the JSON result of generate.
type Report struct {
	Text          string `json:"text"`                     // generated; what is not UTF-8 is U+FFFD
	Precision     string `json:"precision"`                // of the weights
	Length        int64  `json:"context"`                  // tokens of the whole text
	ContextWindow int    `json:"context_window,omitempty"` // tokens of the windows of a text beyond the trained context; 0: there are none
	tokenTimes
}

// textOutput is where generated text goes: as it is into files and pipes, so
// that pieces can be put together, in whole characters to a terminal.
type textOutput struct {
	w        io.Writer
	terminal *display.Screen // nil: not a terminal
	buffer   []byte          // with --json
	keep     bool
}

func newTextOutput(w io.Writer, keep bool) *textOutput {
	t := &textOutput{w: w, keep: keep}
	t.terminal, _ = w.(*display.Screen)
	return t
}

func (t *textOutput) Write(p []byte) (int, error) {
	switch {
	case t.keep:
		t.buffer = append(t.buffer, p...)
		return len(p), nil
	}
	return t.w.Write(p)
}

// end completes a terminal's last line.
func (t *textOutput) end() error {
	if t.keep || t.terminal == nil {
		return nil
	}
	if err := t.terminal.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(t.w)
	return err
}

func (t *textOutput) text() string { return string(t.buffer) }

// tokenTimes compares the first tokens with the last.
type tokenTimes struct {
	Tokens     int     `json:"tokens"`
	Seconds    float64 `json:"seconds"`
	Window     int     `json:"window"`                    // tokens that the medians are of; 0: too few for what follows
	First      float64 `json:"first_us,omitempty"`        // median time of a token among the first, after warm-up
	Last       float64 `json:"last_us,omitempty"`         // among the last
	StateFirst int64   `json:"state_bytes,omitempty"`     // that the model remembers the text in, after the first
	StateLast  int64   `json:"state_bytes_end,omitempty"` // after the last
	HeapFirst  uint64  `json:"heap_bytes,omitempty"`      // of the program, after the first
	HeapLast   uint64  `json:"heap_bytes_end,omitempty"`  // after the last
}

// tokenClock takes the time of the first and the last window of tokens.
type tokenClock struct {
	skip, window int
	n            int
	start, last  time.Time
	first, ring  []time.Duration
	state        int64
	heap         uint64
}

// newTokenClock expects n tokens. The first hundred warm up, if there are many.
func newTokenClock(n int) *tokenClock {
	c := &tokenClock{skip: min(100, n/4), start: time.Now()}
	c.window = min(1000, (n-c.skip)/2)
	c.first, c.ring = make([]time.Duration, 0, c.window), make([]time.Duration, c.window)
	c.last = c.start
	return c
}

// tick is called after each token.
func (c *tokenClock) tick(g *generate.Generator) {
	now := time.Now()
	spent := now.Sub(c.last)
	c.last = now
	if i := c.n - c.skip; i >= 0 && c.window > 0 {
		if i < c.window {
			c.first = append(c.first, spent)
		}
		c.ring[i%c.window] = spent
		if i == c.window-1 {
			c.state, c.heap = g.Bytes(), heap()
			c.last = time.Now()
		}
	}
	c.n++
}

func (c *tokenClock) times(g *generate.Generator) tokenTimes {
	t := tokenTimes{Tokens: c.n, Seconds: c.last.Sub(c.start).Seconds(), Window: c.window}
	if c.n-c.skip < c.window { // the text ended early
		t.Window = 0
	}
	if t.Window > 0 {
		t.First, t.Last = median(c.first), median(c.ring)
		t.StateFirst, t.StateLast = c.state, g.Bytes()
		t.HeapFirst, t.HeapLast = c.heap, heap()
	}
	return t
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2].Nanoseconds()) / 1e3
}

// heap returns the bytes of the program's objects that are in use.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

func (t tokenTimes) print(w io.Writer) {
	fmt.Fprintf(w, "%d tokens in %.2f s\n", t.Tokens, t.Seconds)
	if t.Window > 0 {
		fmt.Fprintf(w, "time of a token   first %d: %.1f µs, last %d: %.1f µs (medians, after warm-up)\n", t.Window, t.First, t.Window, t.Last)
		fmt.Fprintf(w, "state             %d bytes, %d at the end\n", t.StateFirst, t.StateLast)
		fmt.Fprintf(w, "heap              %d bytes, %d at the end\n", t.HeapFirst, t.HeapLast)
	}
}
