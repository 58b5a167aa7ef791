package bench

import (
	"fmt"
	"io"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/cli/display"
)

const benchHeader = "%-15s %-15s %-15s %8s %8s %5s %5s %5s %3s %-8s %10s %7s %10s %9s %9s %6s %10s\n"

// printBenchHeader names the columns of benchRow. Lines are printed as they are
// measured, so columns have fixed widths.
func printBenchHeader(w io.Writer) {
	fmt.Fprintf(w, benchHeader, "mechanism", "form", "direction", "N", "M", "D", "Dv", "heads", "thr", "isa",
		"ms", "spread", "useful", "GFLOP/s", "peak", "share", "extra")
}

// benchRow is a line of the table.
func benchRow(c *bench.Case) string {
	l := &c.Line
	form := l.Form
	if c.AskedForm == "auto" {
		form += " (auto)"
	}
	direction := l.Direction
	if l.Causal {
		direction += " causal"
	}
	useful, rate, share := "–", "–", "–"
	if c.FLOPs > 0 {
		useful, rate, share = display.FormatAmount(c.FLOPs, "FLOP"), fmt.Sprintf("%.4g", l.GFLOPS), display.FormatPercent(l.Share)
	}
	row := fmt.Sprintf("%-15s %-15s %-15s %8d %8d %5d %5d %5d %3d %-8s %10.4g %7s %10s %9s %9.4g %6s %10s",
		benchMechanism(l), form, direction, l.N, l.M, l.D, l.Dv, l.Heads, l.Threads, l.ISA,
		l.Ms, display.FormatPercent(l.Spread), useful, rate, l.Peak, share, display.FormatBytes(float64(l.ExtraBytes)))
	if l.Joules > 0 {
		row += fmt.Sprintf("  %.3g J", l.Joules)
	}
	return row
}

// benchSubject names the subject of a case.
func benchSubject(c *bench.Case) string {
	l := &c.Line
	return fmt.Sprintf("%s %s %s, N %d, M %d, D %d", benchMechanism(l), l.Form, l.Direction, l.N, l.M, l.D)
}

// benchMechanism is the mechanism with its order.
func benchMechanism(l *bench.Line) string {
	if l.Order == 0 {
		return l.Mechanism
	}
	return fmt.Sprintf("%s %d", l.Mechanism, l.Order)
}

// crossingText says from where on the linear form is the faster one.
func crossingText(x bench.Crossing) string {
	from := "at no N measured"
	switch {
	case x.Length > 0:
		from = fmt.Sprintf("from N = %s on", display.FormatCrossover(x.Length))
	case x.LinearIsFaster:
		from = "at every N measured"
	}
	return fmt.Sprintf("%s: %s is faster than %s %s", x.Linear.Setting(), x.Linear.Method(), x.Pairs.Method(), from)
}
