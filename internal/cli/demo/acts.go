package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/generate"
	"github.com/farfield-ml/farfield/internal/inference"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
)

// extent says how much of everything is shown.
type extent struct {
	written     int           // bytes that the model writes
	calibration int           // bytes from which the windows that make the groups are taken
	window      int           // bytes of such a window
	cells       int           // groups of a head
	least, most int           // bytes of the shortest and the longest text that is read
	longest     time.Duration // of the next length, from which on softmax is extrapolated
	begun       int           // bytes of the session before it writes
}

var standard = extent{written: 400, calibration: 45056, window: 2048, cells: 64, least: 512, most: 65536, longest: 4 * time.Second, begun: 20000}

// The exchange: the order of a group's expansion, and which bytes are near.
const (
	order         = 0
	block, window = 8, 8
	wide          = 64 // bytes of a window that reads the text for comparison

	calibrationTokens = 8192 // whose keys make the groups
)

// demoSeed draws the same text on every machine of an instruction set.
const demoSeed = 1

// show runs the demonstration in the folder dir, and writes pictures to the folder out unless it is "".
func show(e *env.Env, dir, out string, x extent) error {
	start := time.Now()
	machine := bench.DescribeMachine(0)
	fmt.Fprintf(e.Stdout, "farfield on %v\n", machine)
	unseen, err := unseenText()
	if err != nil {
		return err
	}
	trained := filepath.Join(dir, "trained")
	if err := writeCarried(trained); err != nil {
		return err
	}
	m, err := inference.Open(trained, inference.Options{})
	if err != nil {
		return err
	}
	if err := showWriting(e, m, x.written); err != nil {
		return err
	}
	linear := filepath.Join(dir, "multipole")
	y, err := showExchange(e, m, linear, unseen[:x.calibration], x)
	if err != nil {
		return err
	}
	r, err := showReading(e, m, y, unseen[x.calibration:], x)
	if err != nil {
		return err
	}
	if out != "" {
		if err := r.save(out, machine); err != nil {
			return err
		}
	}
	if err := showSession(e, linear, unseen[x.calibration:][:x.begun], r, x.written/2); err != nil {
		return err
	}
	showCommands(e.Stdout)
	_, err = fmt.Fprintf(e.Stdout, "\nAll of this took %s.\n", display.Span(time.Since(start).Seconds()))
	return err
}

// showWriting lets the model write n bytes.
func showWriting(e *env.Env, m *inference.Model, n int) error {
	fmt.Fprintf(e.Stdout, "\n1. A small language model writes\n\n"+
		"   This program carries a model of %s numbers. It has read plays of\n"+
		"   Shakespeare and predicts the next letter from those before. Its attention\n"+
		"   is softmax, as in most language models. It continues the first line:\n\n", grouped(m.Config().Params()))
	g, err := m.NewText(inference.TextOptions{Sampling: generate.Sampling{Temperature: inference.DefaultTemperature, Seed: demoSeed}})
	if err != nil {
		return err
	}
	const opening = "ROMEO:\n"
	ids, err := m.EncodePrompt(opening)
	if err != nil {
		return err
	}
	g.Append(ids...)
	w := newIndented(e.Stdout)
	if _, err := io.WriteString(w, opening); err != nil {
		return err
	}
	if _, err := continueText(e.Context, w, m, g, n); err != nil {
		return err
	}
	return w.Flush()
}

// continueText draws n bytes of a text, writes them to w as they come, and returns them.
func continueText(ctx context.Context, w io.Writer, m *inference.Model, g *generate.Generator, n int) (text []byte, err error) {
	err = m.Continue(ctx, g, n, func(id int32) error {
		at := len(text)
		if text, err = m.Bytes(text, id); err != nil {
			return err
		}
		_, err = w.Write(text[at:])
		return err
	})
	return text, err
}

// showExchange writes the exchanged model to the folder dir and returns it.
func showExchange(e *env.Env, m *inference.Model, dir, text string, x extent) (*inference.Model, error) {
	fmt.Fprintf(e.Stdout, "\n2. Its attention is exchanged, without training\n\n"+
		"   Softmax looks back at every byte of the text, one by one: it keeps them\n"+
		"   all, and twice the text takes four times as long. Multipole looks at the\n"+
		"   last %d to %d bytes one by one, and at all earlier ones in %d groups,\n"+
		"   whose number stays as it is however long the text becomes.\n\n", window+1, window+block, x.cells)
	start := time.Now()
	subject, err := m.ExchangeSubject()
	if err != nil {
		return nil, err
	}
	windows, err := m.Windows(text, x.window)
	if err != nil {
		return nil, err
	}
	var in exchange.Texts
	if in.Calibration, in.HeldOut, err = exchange.CutWindows(windows, calibrationTokens); err != nil {
		return nil, err
	}
	in.HeldOut = in.HeldOut[:1] // the text below judges
	p, b, w := order, block, window
	o := exchange.Options{Cells: &x.cells, Order: &p, Block: &b, Window: &w, Length: x.window, Say: func(text string, _ float64) { showProgress(e, text) }}
	var r *exchange.Result
	err = e.RunInterruptibly(func() (err error) {
		r, err = exchange.Run(e.Context, subject, in, o)
		return err
	})
	showProgress(e, "")
	if err != nil {
		return nil, err
	}
	if err := exchanged.Write(dir, m.Path(), r.Manifest(), r.Numbers(), map[string][]byte{exchanged.PageFile: r.Page("demo")}); err != nil {
		return nil, err
	}
	y, err := inference.Open(dir, inference.Options{})
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(e.Stdout, "   It read %s bytes to find the groups and wrote the exchanged model to a\n   folder, in %s. No weight of the model changed.\n", grouped(r.Tokens), display.FormatSeconds(time.Since(start).Seconds()))
	return y, err
}

// showProgress shows what is done on a terminal; "": it removes the line.
func showProgress(e *env.Env, text string) {
	if !e.IsTerminal {
		return
	}
	if text != "" {
		text = "   " + text + " "
	}
	fmt.Fprintf(e.Notes(), "\r\x1b[K%s", text)
}

// showReading lets the trained model m, its window alone and the exchanged model y read a text.
func showReading(e *env.Env, m, y *inference.Model, text string, x extent) (*reading, error) {
	fmt.Fprintf(e.Stdout, "\n3. Both read a text that neither has seen, up to %s bytes of it\n\n"+
		"   A third reads it, too: the trained model with a window alone, whose layers\n"+
		"   each look at no more than the last %d bytes.\n\n", grouped(x.most), block+window)
	near, err := windowAlone(m, block+window)
	if err != nil {
		return nil, err
	}
	far, err := windowAlone(m, wide)
	if err != nil {
		return nil, err
	}
	readers := []*reader{
		{name: "softmax", model: m.Model()},
		{name: "window alone", model: near},
		{name: "multipole", model: y.Model()},
	}
	var r *reading
	err = e.RunInterruptibly(func() (err error) {
		r, err = measureReading(e.Context, readers, text, x.least, x.most, x.longest, func(n int) { showProgress(e, fmt.Sprintf("%d bytes", n)) })
		if err != nil {
			return err
		}
		alone := []*reader{{name: "wide window", model: far}}
		w, err := measureReading(e.Context, alone, text, x.least, int(r.lengths[r.shared()-1]), time.Hour, func(int) {})
		if err == nil {
			r.wide = w.meanBits(0)
		}
		return err
	})
	showProgress(e, "")
	if err != nil {
		return nil, err
	}
	r.chart(e.Stdout)
	fmt.Fprintln(e.Stdout)
	for _, line := range r.verdicts() {
		fmt.Fprintf(e.Stdout, "   %s\n", wrap(line, 74, "   "))
	}
	return r, nil
}

// windowAlone returns a model whose layers see the last span bytes alone.
func windowAlone(m *inference.Model, span int) (*model.Model, error) {
	return m.Model().Exchanged(model.Exchange{Mechanism: "local", Set: map[string]string{"span": strconv.Itoa(span)}})
}

// verdicts say what the reading found, for and against each function.
func (r *reading) verdicts() []string {
	last, all := r.shared()-1, len(r.lengths)-1
	s, w, m := r.readers[softmaxReader], r.readers[windowReader], r.readers[multipoleReader]
	n := grouped(int(r.lengths[last]))
	var list []string
	switch at := r.crossover(); {
	case m.seconds[last] >= s.seconds[last]:
		list = append(list, fmt.Sprintf("Time: softmax is as fast or faster at every length up to %s bytes here: multipole takes %s, softmax %s.", n, display.FormatSeconds(m.seconds[last]), display.FormatSeconds(s.seconds[last])))
	default:
		text := fmt.Sprintf("Time: %s bytes take multipole %s and softmax %s, %.1f times as long.", n, display.FormatSeconds(m.seconds[last]), display.FormatSeconds(s.seconds[last]), s.seconds[last]/m.seconds[last])
		if at > 0 {
			text += fmt.Sprintf(" Below about %s bytes softmax is faster.", display.FormatCrossover(at))
		}
		if last < all {
			beyond, _, _ := r.at(softmaxReader, all)
			text += fmt.Sprintf(" %s bytes take multipole %s; softmax would take about %s.", grouped(int(r.lengths[all])), display.FormatSeconds(m.seconds[all]), display.FormatSeconds(beyond))
		}
		list = append(list, text)
	}
	_, cache, measured := r.at(softmaxReader, all)
	would := "keeps"
	if !measured {
		would = "would keep"
	}
	list = append(list, fmt.Sprintf("Memory: after %s bytes multipole keeps %s, after %s the same %s. Softmax %s %s, and more with each byte.",
		grouped(int(r.lengths[0])), display.FormatBytes(m.memory[0]), grouped(int(r.lengths[all])), display.FormatBytes(m.memory[all]), would, display.FormatBytes(cache)))
	if m.memory[0] != m.memory[all] {
		list[1] = fmt.Sprintf("Memory: multipole keeps %s after %s bytes and %s after %s. Softmax %s %s.",
			display.FormatBytes(m.memory[0]), grouped(int(r.lengths[0])), display.FormatBytes(m.memory[all]), grouped(int(r.lengths[all])), would, display.FormatBytes(cache))
	}
	bits := [3]float64{r.meanBits(softmaxReader), r.meanBits(windowReader), r.meanBits(multipoleReader)}
	text := fmt.Sprintf("Quality: a byte costs %.3f bits with softmax, %.3f with multipole, and %.3f with a window of %d bytes alone (fewer is better, 8 is no model at all).", bits[0], bits[2], bits[1], block+window)
	const alike = 0.005 // bits
	if bits[1] <= bits[2]+alike {
		text += " The window alone does as well here: so small a model makes no use of far bytes in this text."
	} else {
		text += fmt.Sprintf(" Bytes farther back are worth %.3f bits to softmax, and multipole keeps %.0f %% of that.", bits[1]-bits[0], 100*(bits[1]-bits[2])/(bits[1]-bits[0]))
		if r.wide <= bits[2]+alike {
			text += fmt.Sprintf(" A window of %d bytes would do as well, with %.3f: so small a model makes little use of what lies beyond.", wide, r.wide)
		}
	}
	list = append(list, text)
	form := "The window alone is slower than multipole here: %s for all %s bytes, with %s."
	if w.seconds[all] < m.seconds[all] {
		form = "The window alone is the fastest: %s for all %s bytes, with %s."
	}
	return append(list, fmt.Sprintf(form, display.FormatSeconds(w.seconds[all]), grouped(int(r.lengths[all])), display.FormatBytes(w.memory[all])))
}

// showSession saves a text in progress of the model in the folder dir, opens the model again and
// goes on.
func showSession(e *env.Env, dir, text string, r *reading, n int) error {
	fmt.Fprintf(e.Stdout, "\n4. A session goes on after a restart\n\n   The exchanged model reads %s bytes of a play and begins to write:\n\n", grouped(len(text)))
	m, err := inference.Open(dir, inference.Options{})
	if err != nil {
		return err
	}
	g, err := m.NewText(inference.TextOptions{Sampling: generate.Sampling{Temperature: inference.DefaultTemperature, Seed: demoSeed}, IsWhole: true})
	if err != nil {
		return err
	}
	ids, err := m.Encode(text, false)
	if err != nil {
		return err
	}
	if err := g.AppendAll(e.Context, ids...); err != nil {
		return err
	}
	w := newIndented(e.Stdout)
	if _, err := continueText(e.Context, w, m, g, n); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	path := filepath.Join(dir, "session")
	if err := g.Save(path); err != nil {
		return err
	}
	want, err := continueText(e.Context, io.Discard, m, g, n)
	if err != nil {
		return err
	}
	size := float64(g.Bytes())

	fmt.Fprintf(e.Stdout, "\n   Its state takes %s and is saved to a file. The model is closed and opened\n   again, and the saved session goes on:\n\n", display.FormatBytes(size))
	if m, err = inference.Open(dir, inference.Options{}); err != nil {
		return err
	}
	if g, err = generate.LoadGenerator(path, m.Model()); err != nil {
		return err
	}
	w = newIndented(e.Stdout)
	got, err := continueText(e.Context, w, m, g, n)
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("session: it went on with %q after the restart, and with %q without", got, want)
	}
	_, err = fmt.Fprintf(e.Stdout, "\n   These are the bytes that the session wrote without a restart, too.\n")
	return err
}

// showCommands ends with the commands for a user's own text, folder and program.
func showCommands(w io.Writer) {
	fmt.Fprint(w, "\n5. With your own\n\n"+
		"   text      farfield train --data notes.txt --out run/notes\n"+
		"   model     farfield exchange --model DIR --data texts.txt --out linear\n"+
		"   program   farfield serve --model linear\n\n"+
		"   The first learns a text. The second exchanges the attention of a model that\n"+
		"   was trained elsewhere, from a folder in the Hugging Face layout, and says what\n"+
		"   it loses. The third answers programs as OpenAI's API does; Go programs open\n"+
		"   the folder themselves, by farfield.Open(\"linear\").\n")
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// wrap breaks a line between words at a width, and indents the lines after the first.
func wrap(line string, width int, indent string) string {
	var b bytes.Buffer
	n := 0
	for i, word := range bytes.Fields([]byte(line)) {
		if i > 0 && n+1+len(word) > width {
			b.WriteString("\n" + indent)
			n = 0
		} else if i > 0 {
			b.WriteByte(' ')
			n++
		}
		b.Write(word)
		n += len(word)
	}
	return b.String()
}

// indented writes a text that a model made, each line after blanks, at once.
type indented struct {
	text  *token.Writer
	inner *margin
}

// margin puts blanks before each line.
type margin struct {
	w      io.Writer
	inLine bool
}

func newIndented(w io.Writer) *indented {
	inner := &margin{w: w}
	return &indented{token.NewWriter(inner), inner}
}

func (w *indented) Write(p []byte) (int, error) { return w.text.Write(p) }

// Flush ends the last line.
func (w *indented) Flush() error {
	if err := w.text.Flush(); err != nil || !w.inner.inLine {
		return err
	}
	_, err := io.WriteString(w.inner.w, "\n")
	w.inner.inLine = false
	return err
}

func (m *margin) Write(p []byte) (int, error) {
	var out []byte
	for _, c := range p {
		if !m.inLine && c != '\n' {
			out = append(out, "     │ "...)
			m.inLine = true
		} else if !m.inLine {
			out = append(out, "     │"...)
		}
		if out = append(out, c); c == '\n' {
			m.inLine = false
		}
	}
	_, err := m.w.Write(out)
	return len(p), err
}
