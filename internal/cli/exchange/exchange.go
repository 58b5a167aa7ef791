// Package exchange implements the verb exchange: multipole attention in place of a trained model's own.
package exchange

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/records"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/cli/texts"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/infile"
)

// Command is the verb exchange.
type Command struct {
	Model string   `required:"" placeholder:"DIR" help:"Run, checkpoint, published folder, or name of a model."`
	Data  []string `required:"" sep:"none" placeholder:"TEXTS" help:"Text, or JSON lines, to make codebooks of and to judge by; may be repeated."`
	Out   string   `short:"o" placeholder:"DIR" help:"New folder of the exchanged model (without it the page is printed alone)."`
	Also  []string `sep:"none" placeholder:"TEXTS" help:"Texts of another kind, that judge too."`
	Field string   `placeholder:"NAME" default:"text" help:"Member with the text in JSON lines (${default})."`

	Cosine  *float64 `placeholder:"X" help:"Encoders: least mean cosine of vectors (0.99)."`
	Nats    *float64 `placeholder:"X" help:"Decoders: most nats a token more than the trained model (0.02)."`
	State   string   `placeholder:"BYTES" help:"Decoders: most bytes of the state of a sequence, as 64MiB."`
	Closest bool     `help:"Write what comes closest if the wish cannot be met."`

	Cells  *int   `placeholder:"K" help:"Cells of a head (64 to 1024, chosen)."`
	Order  *int   `placeholder:"P" help:"Order of the expansion, 0 to 2 (chosen)."`
	Window *int   `placeholder:"W" help:"Tokens beside a block that are near (chosen)."`
	Block  *int   `placeholder:"B" help:"Queries that share their near keys (chosen)."`
	Layers string `placeholder:"L,..." help:"Layers that get it: all, or as 0,2-5 (those without a window)."`

	Length *int `placeholder:"N" help:"Tokens of a sequence for which cost is counted (the context, at most 4096)."`
	Tokens *int `placeholder:"N" help:"Tokens whose keys make the codebooks (16384)."`

	Fit     *int `placeholder:"TOKENS" help:"Tokens whose attention in the trained model fits cells of orders 0 and 1, at most --tokens (8192; 0: no fit)."`
	Updates int  `default:"0" placeholder:"N" help:"Updates that then train fitted cells towards the trained model's outputs; takes minutes (${default}: no training)."`

	Positions string `complete:"interpolate" placeholder:"interpolate" help:"Interpolate learned positions for texts of --length tokens (only the learned ones)."`

	flags.Precision
	Seed uint64 `default:"0" placeholder:"N" help:"Seed of the codebooks (${default})."`
	JSON bool   `name:"json" help:"Print the result as JSON."`
}

// Help returns the long help text with examples.
func (c *Command) Help() string {
	return "Puts multipole attention, whose cost is linear in the tokens, in place of the softmax of a trained model, without training unless you ask for --updates. " +
		"Near keys keep their exact weights; far keys are summed in cells, whose centres are learned from the keys of your texts. " +
		"It measures what the model loses on the last fifth of the texts: for encoders by the cosine of their vectors, for decoders by nats a token. " +
		"It chooses the cheapest cells, order and near field that meet --cosine or --nats; if none does, the layers that lose most keep their softmax. " +
		"With --cells, --order, --window or --block, and no --cosine or --nats, it takes these as they are, and measures.\n\n" +
		"Cells of orders 0 and 1 are fitted: each is expanded about the mean query that the trained model sends to its keys, at no cost in use. " +
		"--updates trains these mean queries, and nothing else, towards the outputs of the trained model on the texts of the codebooks; a fifth of their windows is left out and decides whether the updates are kept. " +
		"If a choice then meets the wish, cheaper ones are trained too. It needs --precision f32. With --out DIR updates are saved in DIR.updates until DIR is written: after Ctrl-C, or with --closest where nothing was written, the same command goes on from there.\n\n" +
		"The new folder has the trained model, untouched, and the codebooks. All verbs read it. Its page exchange.md has losses, costs and times. " +
		"The first line of the page says whether near keys alone, without any far keys, would do as well: they are cheaper still." + flags.JoinExamples(
		"farfield exchange --model all-MiniLM-L6-v2 --data meetings.txt --also novel.txt --out minilm-multipole",
		"farfield exchange --model DIR --data stories.txt --nats 0.01 --out stories-multipole",
		"farfield exchange --model DIR --data stories.txt --cells 256 --order 1 --block 32 --window 16",
	)
}

// check returns an error for flags that are out of range or do not fit a model that predicts tokens or
// does not.
func (c *Command) check() error {
	for _, x := range []struct {
		name        string
		value       *int
		least, most int
	}{{"cells", c.Cells, 1, 1 << 16}, {"order", c.Order, 0, 2}, {"window", c.Window, 0, 1 << 20}, {"block", c.Block, 1, 1 << 20}, {"length", c.Length, 1, 1 << 30}, {"tokens", c.Tokens, 1, 1 << 24}, {"fit", c.Fit, 0, 1 << 24}, {"updates", &c.Updates, 0, 1 << 20}} {
		if x.value != nil && (*x.value < x.least || *x.value > x.most) {
			return env.InputErrorf("--%s: %d, needs %d to %d", x.name, *x.value, x.least, x.most)
		}
	}
	switch {
	case c.Cosine != nil && !(*c.Cosine > 0 && *c.Cosine <= 1):
		return env.InputErrorf("--cosine: %g, needs to be above 0 and at most 1", *c.Cosine)
	case c.Nats != nil && !(*c.Nats > 0 && *c.Nats <= 100):
		return env.InputErrorf("--nats: %g, needs to be above 0 and at most 100", *c.Nats)
	case c.Positions != "" && c.Positions != exchanged.Interpolate:
		return env.InputErrorf("--positions: %q is not %q", c.Positions, exchanged.Interpolate)
	case c.Updates > 0 && c.Precision.Shown() != "":
		return env.InputErrorf("--updates: %d, and --precision is %s; updates need f32", c.Updates, c.Precision.Shown())
	case c.Field == "":
		return env.InputErrorf("--field: is empty")
	case c.Out == "":
		return nil
	}
	if _, err := os.Lstat(c.Out); err == nil {
		return env.InputErrorf("--out: %s exists already; name a new folder", c.Out)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return env.InputErrorf("--out: %w", err)
	}
	if folder := c.updatesFolder(); folder != "" {
		if err := exchange.CheckUpdatesFolder(folder); err != nil {
			return env.InputErrorf("--updates: %w; they are saved there: move it, or give another --out", err)
		}
	}
	return nil
}

// updatesFolder returns the folder in which updates are saved; "": they are not.
func (c *Command) updatesFolder() string {
	if c.Updates == 0 || c.Out == "" {
		return ""
	}
	return filepath.Clean(c.Out) + ".updates"
}

// Report is the JSON result of exchange.
type Report struct {
	Model     string `json:"model"`
	Out       string `json:"out,omitempty"`
	Verdict   string `json:"verdict"`
	Precision string `json:"precision"` // of the weights
	*exchange.Result
}

// Run measures the exchange and writes the folder. It returns an error if flags, model or texts are
// invalid, if the wish cannot be met, or if a file cannot be written.
func (c *Command) Run(e *env.Env) error {
	if err := c.check(); err != nil {
		return err
	}
	path, err := runs.ResolveModel(c.Model)
	if err != nil {
		return env.MarkInput(err)
	}
	if exchanged.Is(path) {
		return env.InputErrorf("--model: %s is an exchanged model; name the trained one, %s", c.Model, filepath.Join(c.Model, exchanged.ModelFolder))
	}
	precision, err := c.Precision.Parsed()
	if err != nil {
		return env.MarkInput(err)
	}
	m, err := runs.OpenText(path, inference.Options{Positions: c.Positions, Precision: precision})
	if err != nil {
		return env.MarkInput(err)
	}
	subject, err := m.ExchangeSubject()
	if err != nil {
		return env.MarkInput(err)
	}
	if err := c.checkPositions(subject); err != nil {
		return err
	}
	o, err := c.options(subject)
	if err != nil {
		return err
	}
	in, err := c.texts(e, m, subject.WindowTokens(o.Length), o.Tokens)
	if err != nil {
		return env.MarkInput(err)
	}
	o.UpdatesFolder = c.updatesFolder()
	o.NotSaved = func(err error) {
		fmt.Fprintf(e.Notes(), "--updates: they cannot be saved, and go on without: %s\n", display.Escape(err.Error()))
	}
	o.Say = newProgress(e).say
	var x *exchange.Result
	if err := e.RunInterruptibly(func() (err error) {
		x, err = exchange.Run(e.Context, subject, *in, o)
		return err
	}); err != nil {
		return env.MarkInput(err)
	}
	if c.Updates > 0 && x.Updates == 0 {
		fmt.Fprintf(e.Notes(), "--updates: %s\n", x.UpdatesNote)
	}
	page := x.Page(filepath.Base(path))
	if c.Out != "" && (x.Meets || c.Closest) && len(x.Exchanged) > 0 {
		text, err := atomicfile.MarshalJSON(x)
		if err != nil {
			return err
		}
		if err := exchanged.Write(c.Out, path, x.Manifest(), x.Numbers(), map[string][]byte{exchanged.PageFile: page, "result.json": text}); err != nil {
			return err
		}
		fmt.Fprintf(e.Notes(), "%s: written\n", display.Escape(c.Out))
		if o.UpdatesFolder != "" {
			if err := exchange.RemoveUpdates(o.UpdatesFolder); err != nil {
				fmt.Fprintf(e.Notes(), "--updates: the saved ones stay: %s\n", display.Escape(err.Error()))
			}
		}
	} else if c.Out != "" && !c.JSON {
		if _, err := os.Stat(o.UpdatesFolder); err == nil {
			defer fmt.Fprintf(e.Notes(), "%s: the updates stay, for a run with another wish or --closest\n", display.Escape(o.UpdatesFolder))
		}
		defer fmt.Fprintf(e.Notes(), "%s: not written\n", display.Escape(c.Out))
	}
	if c.JSON {
		r := Report{Model: c.Model, Out: c.Out, Verdict: x.Verdict(), Precision: precision.String(), Result: x}
		if err := display.PrintJSON(e.Stdout, r); err != nil {
			return err
		}
	} else if _, err := e.Stdout.Write(page); err != nil {
		return err
	}
	switch {
	case c.Out != "" && len(x.Exchanged) == 0:
		return errors.New("the wish is met only with every layer exact: nothing is written")
	case c.Out != "" && !x.Meets && !c.Closest:
		return errors.New("the wish cannot be met: nothing is written; --closest writes what comes closest")
	}
	return nil
}

// options returns the choices of the flags for a model.
func (c *Command) options(s *exchange.Subject) (o exchange.Options, err error) {
	config := s.Model.Config()
	o = exchange.Options{Cells: c.Cells, Order: c.Order, Block: c.Block, Window: c.Window, Seed: c.Seed, Updates: c.Updates, Length: s.WindowTokens(0), Tokens: exchange.DefaultTokens}
	if c.Length != nil {
		o.Length = *c.Length
	}
	if c.Tokens != nil {
		o.Tokens = *c.Tokens
	}
	o.Tokens = exchange.BoundTokens(config, o.Tokens)
	if o.Fit, err = exchange.FitTokens(c.Fit, c.Order, o.Tokens); err != nil {
		return o, env.InputErrorf("--%w", err)
	}
	if c.Updates > 0 && o.Fit == 0 {
		return o, env.InputErrorf("--updates: %d, and no cells are fitted; they train cells of orders 0 and 1 (--order) from where --fit above 0 leaves them", c.Updates)
	}
	if c.Layers != "" {
		list := flags.Exchange{Mechanism: exchange.Name, Layers: c.Layers}
		x, err := list.Request()
		if err != nil {
			return o, err
		}
		if o.Layers = x.Layers; x.AllLayers {
			for i := range config.Layers {
				o.Layers = append(o.Layers, i)
			}
		}
	}
	isCausal := config.IsCausal()
	switch {
	case c.Cosine != nil && isCausal:
		return o, env.InputErrorf("--cosine: is of encoders, and the model is a decoder; --nats is of decoders")
	case c.Nats != nil && !isCausal:
		return o, env.InputErrorf("--nats: is of decoders, and the model is an encoder; --cosine is of encoders")
	case c.State != "" && !isCausal:
		return o, env.InputErrorf("--state: is of decoders, and the model is an encoder, which keeps no state")
	case c.Cosine == nil && c.Nats == nil && c.State == "":
		return o, nil
	}
	o.Wish = &exchange.Wish{}
	if c.Cosine != nil {
		o.Wish.Cosine = *c.Cosine
	}
	if c.Nats != nil {
		o.Wish.Nats = *c.Nats
	}
	if c.State != "" {
		if o.Wish.State, err = flags.ParseBytes(c.State); err != nil {
			return o, env.InputErrorf("--state: %w", err)
		}
	}
	return o, nil
}

// checkPositions returns an error if learned positions are to be interpolated that the model has not, or
// if its sequences cannot be as long.
func (c *Command) checkPositions(s *exchange.Subject) error {
	if c.Positions == "" {
		return nil
	}
	if s.Positions == "" {
		return env.InputErrorf("--positions: %s, and the model has no learned positions of an encoder", c.Positions)
	}
	if most := s.Model.Config().TrainedContext(); c.Length != nil && *c.Length > most {
		return env.InputErrorf("--length: %d, the %d learned positions are interpolated to %d at most", *c.Length, s.Learned, most)
	}
	return nil
}

// texts reads the texts as windows of n tokens. tokens are those of the calibration.
func (c *Command) texts(e *env.Env, m *inference.Model, n, tokens int) (*exchange.Texts, error) {
	data, err := c.windows(e, m, "--data", c.Data, n)
	if err != nil {
		return nil, err
	}
	var x exchange.Texts
	if x.Calibration, x.HeldOut, err = exchange.CutWindows(data, tokens); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	if len(c.Also) > 0 {
		other, err := c.windows(e, m, "--also", c.Also, n)
		if err != nil {
			return nil, err
		}
		x.Other = exchange.Spread(other)
	}
	return &x, nil
}

const (
	// fullWindows is the number of full windows from which texts that do not fill one are left out.
	fullWindows = 4
	// maxText is the size from which pieces of a text are read in its place.
	maxText    = 8 << 20
	textPieces = 16
)

// windows returns the windows of n tokens of texts. Texts that are shorter than a window are left out if
// there are enough others; otherwise all are joined.
func (c *Command) windows(e *env.Env, m *inference.Model, flag string, files []string, n int) ([][]int32, error) {
	var all []string
	for _, path := range files {
		data, err := texts.ReadText(e, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		list, err := c.split(path, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, list...)
	}
	var full [][]int32
	for _, text := range all {
		list, err := m.Windows(text, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		for _, w := range list {
			if len(w) == n {
				full = append(full, w)
			}
		}
	}
	if len(full) >= fullWindows {
		return full, nil
	}
	list, err := m.Windows(strings.Join(all, "\n"), n)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: has no text", flag)
	}
	return list, nil
}

// split returns the texts of a file: the members of JSON lines, or the whole.
func (c *Command) split(path string, data []byte) (list []string, err error) {
	if !records.IsFirstRecord(bufio.NewReaderSize(bytes.NewReader(data), 1<<16), c.Field) {
		return pieces(strings.ToValidUTF8(string(data), "\ufffd")), nil
	}
	r := bufio.NewReader(infile.NewRecords(bytes.NewReader(data)))
	for line := 1; ; line++ {
		text, err := r.ReadBytes('\n')
		if text = bytes.TrimSpace(text); len(text) > 0 {
			var members map[string]json.RawMessage
			if err := json.Unmarshal(text, &members); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", path, line, err)
			}
			var s string
			if err := json.Unmarshal(members[c.Field], &s); err != nil {
				return nil, fmt.Errorf("%s: line %d: %s: is no text", path, line, display.Field(c.Field))
			}
			list = append(list, pieces(s)...)
		}
		if err != nil {
			return list, nil
		}
	}
}

// pieces returns the text, or of a long one pieces that are spread evenly.
func pieces(text string) []string {
	if len(text) <= maxText {
		return []string{text}
	}
	list := make([]string, textPieces)
	for i := range list {
		at := i * (len(text) / textPieces)
		piece := text[at:][:maxText/textPieces]
		for len(piece) > 0 && !utf8.RuneStart(piece[0]) {
			piece = piece[1:]
		}
		list[i] = strings.ToValidUTF8(piece, "")
	}
	return list
}

// progress says what is done, and about how long the rest takes.
type progress struct {
	e           *env.Env
	start, told time.Time
}

func newProgress(e *env.Env) *progress { return &progress{e, time.Now(), time.Now()} }

// say prints a step, at most one in two seconds.
func (p *progress) say(text string, share float64) {
	if time.Since(p.told) < 2*time.Second {
		return
	}
	p.told = time.Now()
	left := ""
	if past := time.Since(p.start); share > 0.05 && share < 1 {
		left = fmt.Sprintf(", about %s left", display.Span(math.Ceil(past.Seconds()*(1-share)/share)))
	}
	fmt.Fprintf(p.e.Notes(), "exchange: %s%s\n", text, left)
}
