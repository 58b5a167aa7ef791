package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/report"
)

// benchCmd is the verb bench: how fast this machine is at what, beside the peak
// of its multiply-adds.
type benchCmd struct {
	Attention benchAttention `cmd:"" help:"Time attention over whole sequences, forward or backward."`
	Decode    benchDecode    `cmd:"" help:"Time a token after many, through a state."`
	Gemm      benchGemm      `cmd:"" help:"Time products of matrices."`
	Train     benchTrain     `cmd:"" help:"Time an update of a model of bytes."`
}

// benchFlags are what all suites take.
type benchFlags struct {
	Time   time.Duration `default:"500ms" placeholder:"T" help:"Time to spend on a line (${default}); three rounds are made at least."`
	Memory memory        `placeholder:"SIZE" help:"Do not run but mark what would not fit, such as 48GiB; by default the memory that is free."`
	JSON   bool          `name:"json" help:"Print an object for each line, the rest on standard error."`
	Plot   string        `placeholder:"FILE" help:"Draw time over tokens, both logarithmic, as .svg or .png. Crosses mark what would not fit."`
}

// Help says what the columns mean.
func (c *benchFlags) Help() string {
	return "Flags with dots take lists: -n 256,1024 -d 16,32. " +
		"A line has the median time of a call and its spread (distance of the quartiles over the median); " +
		"the useful operations, 4NF(Dv+1) for each head in the linear form with F features, causal too, " +
		"2N²(D+Dv) in the direct form, half if causal, and 2.5 times as many for a backward pass; " +
		"the peak, of multiply-adds of one core, measured in turns with the calls, times the threads; " +
		"and the memory beyond inputs and outputs: scratch of one worker, what a call allocates, " +
		"and what is kept between calls. Joules are those of the whole processor, where the system tells."
}

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

// sweep is what a suite is to measure.
type sweep struct {
	title string
	axis  string // what Case.X counts
	cases []*bench.Case
}

// measure measures s line by line and prints what comes of it.
func (c *benchFlags) measure(e *env, s *sweep) error {
	if c.Time <= 0 {
		return inputf("--time: %v is not above 0", c.Time)
	}
	if err := checkPlot(c.Plot); err != nil {
		return input(err)
	}
	if c.Memory == 0 {
		c.Memory = memory(bench.Memory())
	}
	notes := e.stdout // of what is no line
	if c.JSON {
		notes = e.stderr
	}
	fmt.Fprintf(notes, "%v\n", bench.Describe(0))
	if !c.JSON {
		printBenchHeader(e.stdout)
	}
	p := sweepProgress{e: e, start: time.Now(), all: len(s.cases)}
	for i, bc := range s.cases {
		p.begin(i, bc)
		if bc.Need > float64(c.Memory) {
			p.clear()
			fmt.Fprintf(notes, "%s does not fit: it needs %s\n", benchSubject(bc), bytesText(bc.Need))
			continue
		}
		err := e.interruptible(func() error { return bc.Measure(e.ctx, c.Time) })
		p.clear()
		if err != nil {
			return err
		}
		if c.JSON {
			err = json.NewEncoder(e.stdout).Encode(bc.Line)
		} else {
			_, err = fmt.Fprintln(e.stdout, benchRow(bc))
		}
		if err != nil {
			return err
		}
	}
	series := bench.Gather(s.cases)
	for _, x := range bench.Crossings(series) {
		fmt.Fprintln(notes, crossingText(x))
	}
	if c.Plot == "" {
		return nil
	}
	f := s.figure(series)
	write := f.WriteSVG
	if filepath.Ext(c.Plot) == ".png" {
		write = f.WritePNG
	}
	return atomicfile.Write(c.Plot, write)
}

// checkPlot reports a file that could not be written after the work.
func checkPlot(path string) error {
	if path == "" {
		return nil
	}
	if ext := filepath.Ext(path); ext != ".svg" && ext != ".png" {
		return fmt.Errorf("--plot: the suffix of %s is %q, needs .svg or .png", path, ext)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("--plot: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("--plot: %s is not a folder", filepath.Dir(path))
	}
	return nil
}

// figure draws the series, with crosses where they would not fit.
func (s *sweep) figure(series []bench.Series) *report.Figure {
	f := &report.Figure{Title: s.title, XLabel: s.axis, YLabel: "seconds"}
	for _, curve := range series {
		x, y := curve.Points()
		if len(x) == 0 {
			continue
		}
		f.Series = append(f.Series, report.Series{Name: curve.Name(), X: x, Y: y})
		if x, y := curve.Beyond(); len(x) > 0 {
			f.Series = append(f.Series, report.Series{Name: curve.Name(), X: x, Y: y, Crosses: true})
		}
	}
	return f
}

// sweepProgress says on standard error how far a long sweep is: in place on a
// terminal, in lines every few seconds elsewhere.
type sweepProgress struct {
	e     *env
	start time.Time
	spoke time.Duration // since start
	all   int
}

// begin is called before case i.
func (p *sweepProgress) begin(i int, c *bench.Case) {
	text := fmt.Sprintf("%d of %d: %s", i+1, p.all, benchSubject(c))
	if p.e.tty {
		fmt.Fprintf(p.e.stderr, "\r\x1b[K%s", text)
	} else if spent := time.Since(p.start); spent-p.spoke >= lineEvery {
		p.spoke = spent
		fmt.Fprintln(p.e.stderr, text)
	}
}

// clear makes room for something else.
func (p *sweepProgress) clear() {
	if p.e.tty {
		fmt.Fprint(p.e.stderr, "\r\x1b[K")
	}
}
