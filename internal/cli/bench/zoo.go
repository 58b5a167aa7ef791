package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
)

// benchZoo is the suite zoo: every row of the catalogue in one table.
type benchZoo struct {
	Mechanism []string      `complete:"mechanisms" placeholder:"NAME" help:"Attention functions (all of the catalogue)."`
	N         []flags.Count `name:"n" short:"n" default:"4096" placeholder:"N" help:"Tokens (${default})."`
	D         flags.Count   `name:"d" short:"d" default:"32" placeholder:"D" help:"Width of queries, keys and values of a head (${default})."`
	Heads     flags.Count   `default:"8" placeholder:"H" help:"Heads (${default}); growth is for one head."`
	Causal    bool          `help:"Query i sees keys j ≤ i; skip rows without a causal form."`
	Measure   []string      `enum:"forward,both,decode,growth" default:"forward,both,decode,growth" placeholder:"WHAT" help:"What to measure, from ${enum} (all)."`
	Time      time.Duration `default:"200ms" placeholder:"T" help:"Time for a figure, at least three rounds (${default})."`
	Limit     time.Duration `default:"3s" placeholder:"T" help:"Predict calls that take longer, marked ~ (${default})."`
	JSON      bool          `name:"json" help:"Print an object for each figure, the rest on standard error."`
}

func (c *benchZoo) Help() string {
	return "All rows are measured in rounds that take turns. ops are the planned operations of the output; GFLOP/s and share of the peak are computed from them. " +
		"extra is memory beyond inputs and outputs, without and with gradients: scratch of one worker, allocations of a call and saved results. " +
		"token is the time of one token in a state that has N tokens, with + if the state grows. " +
		"ops ×2 and time ×2 are the growth of planned operations and of time from N to 2N tokens of one head, in the linear form if there is one, between fastest rounds. " +
		"A row that claims a linear cost must not exceed 2.1 and 2.4. " +
		"--measure has forward with backward, decode after N tokens, and growth. A call longer than --limit is predicted from a short one." + flags.JoinExamples(
		"farfield bench zoo -n 1024 --time 50ms",
		"farfield bench zoo --mechanism fastmax,softmax -n 1024,4096 --measure forward,decode --json",
	)
}

func (c *benchZoo) Run(e *env.Env) error {
	if c.Time <= 0 || c.Limit <= 0 {
		return env.InputErrorf("--time %v, --limit %v: need to be above 0", c.Time, c.Limit)
	}
	for _, name := range c.Mechanism {
		if _, err := mechanism.Lookup(name); err != nil {
			return env.MarkInput(err)
		}
	}
	notes := e.Stdout
	if c.JSON || e.IsQuiet {
		notes = e.Notes()
	}
	var list []*bench.Entry
	for _, threads := range e.Threads {
		par.SetThreads(threads)
		for _, n := range ascending(c.N) {
			z := bench.Zoo{Heads: int(c.Heads), N: n, D: int(c.D), Causal: c.Causal, Rows: c.Mechanism}
			for _, what := range c.Measure {
				switch what {
				case "forward":
					z.Forward = true
				case "both":
					z.Training = true
				case "decode":
					z.Decode = true
				case "growth":
					z.Doubling = true
				}
			}
			entries, lack, err := z.Entries()
			if err != nil {
				return env.MarkInput(err)
			}
			if len(entries) == 0 {
				return env.MarkInput(lack[0])
			}
			if n == ascending(c.N)[0] && threads == e.Threads[0] {
				for _, err := range lack {
					fmt.Fprintf(notes, "%v\n", err)
				}
			}
			list = append(list, entries...)
		}
	}
	if len(list) == 0 || len(c.Measure) == 0 {
		return errNothingToMeasure
	}
	fmt.Fprintf(notes, "%v\n", bench.DescribeMachine(0))
	p := newSweepProgress(e)
	var cases []*bench.Case
	err := e.RunInterruptibly(func() (err error) {
		cases, err = bench.CasesWithin(list, c.Limit)
		return err
	})
	if err == nil {
		err = bench.Measure(cases, c.Time, e.RunInterruptibly, p.next)
	}
	progress.ClearBar(p.bar)
	if perr := c.print(e.Stdout, list); perr != nil {
		return perr
	}
	if err != nil {
		return err
	}
	for _, line := range zooVerdict(list) {
		fmt.Fprintln(notes, line)
	}
	return nil
}

func (c *benchZoo) print(w io.Writer, list []*bench.Entry) error {
	if !c.JSON {
		fmt.Fprintf(w, zooLine, "mechanism", "form", "N", "thr", "forward", "+ backward", "ops", "GFLOP/s", "share", "extra", "with both", "token", "ops ×2", "time ×2")
	}
	for _, entry := range list {
		if !c.JSON {
			if _, err := io.WriteString(w, zooRow(entry)); err != nil {
				return err
			}
			continue
		}
		for _, bc := range entry.Cases() {
			if bc.Rounds == 0 && bc.Guess == 0 {
				continue
			}
			if err := json.NewEncoder(w).Encode(bc); err != nil {
				return err
			}
		}
	}
	return nil
}

const zooLine = "%-18s %-14s %7s %4s %10s %10s %11s %8s %7s %10s %10s %10s %7s %7s\n"

// zooRow is a line of the table.
func zooRow(e *bench.Entry) string {
	var extra, both, rate, share string
	if f := e.Forward; f != nil && f.Rounds > 0 {
		extra, rate, share = display.FormatBytes(float64(f.ExtraBytes)), fmt.Sprintf("%.3g", f.GFLOPS), display.FormatPercent(f.Share)
	}
	if t := e.Training; t != nil && t.Rounds > 0 {
		both = display.FormatBytes(float64(t.ExtraBytes))
	}
	form := e.Plan.Form.String()
	if !e.Traits.Linear && e.Plan.F == 0 && e.Plan.Cost == 0 {
		form = "own"
	}
	if e.Causal {
		form += " causal"
	}
	token := zooTime(e.Decode)
	if e.Decode != nil && !e.Traits.Streaming {
		token += "+"
	}
	growth := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", x)
	}
	line := fmt.Sprintf(zooLine, e.Row.Name, form, fmt.Sprint(e.N), fmt.Sprint(e.Threads), zooTime(e.Forward), zooTime(e.Training),
		display.FormatAmount(e.Plan.FLOPs, ""), rate, share, extra, both, token, growth(e.PlannedGrowth()), growth(e.TimeGrowth()))
	return strings.TrimRight(line, " \n") + "\n"
}

// zooTime is the time of a case, with ~ where it is foretold.
func zooTime(c *bench.Case) string {
	switch {
	case c == nil:
		return ""
	case c.Rounds > 0:
		return display.FormatSeconds(c.Ms / 1e3)
	case c.Guess > 0:
		return "~" + display.FormatSeconds(c.Guess/1e3)
	}
	return ""
}

// zooVerdict says which of the rows that claim a linear cost do not have it.
func zooVerdict(list []*bench.Entry) (lines []string) {
	held, timed := 0, 0
	for _, e := range list {
		planned, took := e.PlannedGrowth(), e.TimeGrowth()
		if !e.Row.Linear || planned == 0 {
			continue
		}
		held++
		if planned > bench.MaxGrowth {
			lines = append(lines, fmt.Sprintf("%s claims a linear cost and plans %.3g times the operations for twice %d tokens", e.Row.Name, planned, e.N))
		}
		if took > 0 {
			timed++
		}
		if took > bench.MaxTimeGrowth {
			lines = append(lines, fmt.Sprintf("%s claims a linear cost and takes %.3g times the time for twice %d tokens", e.Row.Name, took, e.N))
		}
	}
	if held > 0 && len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("of %d that claim a linear cost none plans more than %g times the operations for twice the tokens; of %d that were timed none takes more than %g times the time",
			held, bench.MaxGrowth, timed, bench.MaxTimeGrowth))
	}
	return lines
}
