// Package bench implements the verb bench: timings of attention, decoding, training and products.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/report"
)

// Command is the verb bench: it measures the speed of this machine, relative to the
// peak of its multiply-adds.
type Command struct {
	Attention benchAttention `cmd:"" help:"Time attention over whole sequences, forward or backward."`
	Decode    benchDecode    `cmd:"" help:"Time a token after many, through a state."`
	Zoo       benchZoo       `cmd:"" help:"Time every mechanism of the catalogue, in one table."`
	Gemm      benchGemm      `cmd:"" help:"Time products of matrices."`
	Train     benchTrain     `cmd:"" help:"Time an update of a model of bytes."`
}

// benchFlags are the flags of all suites.
type benchFlags struct {
	Time   time.Duration `default:"500ms" placeholder:"T" help:"Time for a line, at least three rounds (${default})."`
	Memory memory        `placeholder:"SIZE" help:"Skip and mark cases that need more memory, as 48GiB."`
	JSON   bool          `name:"json" help:"Print an object for each line, the rest on standard error."`
	Plot   string        `placeholder:"FILE" help:"Draw time over tokens, both logarithmic: .svg or .png."`
}

// columns describes the columns of the table, of which operations says what is counted.
func (c *benchFlags) columns(operations string) string {
	return "Flags with dots take lists: -n 256,1024 -d 16,32 --threads 1,2. " +
		"All lines are measured in rounds that take turns, so lines can be compared on a busy machine too. " +
		"A line has the median time of a call and its spread (distance of the quartiles over the median). " +
		operations + " " +
		"The peak is multiply-adds on the same number of threads, measured before each round. " +
		"Memory is beyond inputs and outputs: scratch of one worker, allocations of a call and results saved between calls. " +
		"Joules are of the whole processor, if the system counts them. " +
		"--plot marks cases without enough memory with crosses, and the first faster linear form with a ring. " +
		"--memory also skips cases beyond the free memory of this machine."
}

// attentionOperations says which operations of attention count.
const attentionOperations = "Useful operations of a head are 4NF(Dv+1) in the linear form with F features, causal or not; " +
	"2N²(D+Dv) in the direct form, half if causal; and 2.5 times the forward pass for a backward pass."

// memory is a number of bytes, such as 48GiB.
type memory float64

func (m *memory) UnmarshalText(text []byte) error {
	number, factor := string(text), 1.0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if rest, ok := strings.CutSuffix(number, unit); ok {
			number, factor = rest, float64(int64(1)<<(10*(i+1)))
			break
		}
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(x > 0) || x > 1e15 {
		return fmt.Errorf("%q: needs a number above 0 with KiB, MiB, GiB, TiB or nothing for bytes", text)
	}
	*m = memory(x * factor)
	return nil
}

// errNothingToMeasure is the error of a sweep without lengths, widths, heads or quantities.
var errNothingToMeasure = env.InputErrorf("a flag has an empty list: there is nothing to measure")

// measure measures s and prints the results, also after an interrupt.
func (c *benchFlags) measure(e *env.Env, s *sweep) error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case len(s.cases) == 0 && s.lack == nil:
		return errNothingToMeasure
	case len(s.cases) == 0:
		return env.MarkInput(s.lack)
	}
	notes := c.remarks(e)
	fmt.Fprintf(notes, "%v\n", bench.DescribeMachine(0))
	var fit []*bench.Case
	for _, bc := range s.cases {
		if why := c.lacks(bc); why != "" {
			fmt.Fprintf(notes, "%s does not fit: it needs %s, %s\n", benchSubject(bc), display.FormatBytes(bc.Need), why)
			continue
		}
		fit = append(fit, bc)
	}
	p := newSweepProgress(e)
	err := bench.Measure(fit, c.Time, e.RunInterruptibly, p.next)
	progress.ClearBar(p.bar)
	if err := c.print(e.Stdout, fit); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	series := bench.GroupSeries(s.cases)
	crossings := bench.FindCrossings(series)
	for _, x := range crossings {
		fmt.Fprintln(notes, crossingText(x))
	}
	if c.Plot == "" {
		return nil
	}
	if !slices.ContainsFunc(s.cases, func(bc *bench.Case) bool { return bc.Rounds > 0 }) {
		return fmt.Errorf("--plot: nothing was measured")
	}
	f := s.figure(series, crossings)
	write := f.WriteSVG
	if filepath.Ext(c.Plot) == ".png" {
		write = f.WritePNG
	}
	return atomicfile.Write(c.Plot, write)
}

// remarks returns the writer for output other than result lines.
func (c *benchFlags) remarks(e *env.Env) io.Writer {
	if c.JSON || e.IsQuiet {
		return e.Notes()
	}
	return e.Stdout
}

// lacks says which memory a case does not fit in; "" if it does.
func (c *benchFlags) lacks(bc *bench.Case) string {
	if c.Memory > 0 && bc.Need > float64(c.Memory) {
		return "more than " + display.FormatBytes(float64(c.Memory))
	}
	if free := float64(machine.FreeMemory()); bc.Need > free {
		return "and " + display.FormatBytes(free) + " are free"
	}
	return ""
}

// print writes the lines that were measured, as far as they were.
func (c *benchFlags) print(w io.Writer, cases []*bench.Case) error {
	if !c.JSON {
		printBenchHeader(w)
	}
	for _, bc := range cases {
		if bc.Rounds == 0 {
			continue
		}
		var err error
		if c.JSON {
			err = json.NewEncoder(w).Encode(bc)
		} else {
			_, err = fmt.Fprintln(w, benchRow(bc))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check returns an error for a flag that would fail after the work.
func (c *benchFlags) check() error {
	if c.Time <= 0 {
		return env.InputErrorf("--time: %v is not above 0", c.Time)
	}
	if ext := filepath.Ext(c.Plot); c.Plot != "" && ext != ".svg" && ext != ".png" {
		return env.InputErrorf("--plot: the suffix of %s is %q, needs .svg or .png", c.Plot, ext)
	}
	if err := env.CheckOutput(c.Plot); err != nil {
		return env.InputErrorf("--plot: %w", err)
	}
	return nil
}

// figure draws the series, with crosses where they would not fit and rings
// where they cross.
func (s *sweep) figure(series []bench.Series, crossings []bench.Crossing) *report.Figure {
	m := bench.DescribeMachine(0)
	f := &report.Figure{
		Title: fmt.Sprintf("%s\n%v; %s kernels", s.title, m.CPU, m.ISA), XLabel: s.axis, YLabel: "time of a call",
		XText: func(x float64) string { return display.FormatAmount(x, "") }, YText: display.FormatTick,
	}
	missing := "does not fit"
	for _, curve := range series {
		x, y := curve.MeasuredPoints()
		if len(x) == 0 {
			continue
		}
		f.Series = append(f.Series, report.Series{Name: curve.Name(), X: x, Y: y, Colour: curve.Method(), Mark: curve.Setting()})
		if x, y := curve.ExtrapolatedPoints(); len(x) > 0 {
			f.Series = append(f.Series, report.Series{Name: missing, X: x, Y: y, Style: report.Crosses})
			missing = "" // once in the legend
		}
	}
	rings := report.Series{Name: "linear form faster from here", Style: report.Rings}
	for _, c := range crossings {
		if c.Length > 0 {
			rings.X, rings.Y = append(rings.X, c.Length), append(rings.Y, c.Seconds)
		}
	}
	if len(rings.X) > 0 {
		f.Series = append(f.Series, rings)
	}
	return f
}

// sweepProgress says on standard error how far a long sweep is: a bar on a
// terminal, lines every few seconds elsewhere.
type sweepProgress struct {
	w     io.Writer
	bar   *progressbar.ProgressBar // nil: lines
	start time.Time
	spoke time.Time
}

func newSweepProgress(e *env.Env) *sweepProgress {
	p := &sweepProgress{w: e.Notes(), start: time.Now()}
	p.spoke = p.start
	if e.IsTerminal {
		p.bar = progress.NewBar(e.Notes(), 1, progressbar.OptionSetPredictTime(true))
	}
	return p
}

// next is called before each round.
func (p *sweepProgress) next(at bench.Progress) {
	if p.bar != nil {
		// A bar that cannot be drawn is no reason to stop measuring.
		p.bar.ChangeMax64(int64(at.Total))
		p.bar.Describe(fmt.Sprintf("%-50s", benchSubject(at.Case)))
		_ = p.bar.Set64(int64(at.Elapsed))
	} else if now := time.Now(); now.Sub(p.spoke) >= progress.LinePeriod {
		p.spoke = now
		fmt.Fprintf(p.w, "%.0f%%  %s left  %s\n", 100*float64(at.Elapsed)/float64(at.Total), (at.Total - at.Elapsed).Round(time.Second), benchSubject(at.Case))
	}
}
