package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/attention"
)

// print writes the report for people.
func (r *planReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	s := r.Shape
	fmt.Fprintf(w, "machine\t%s\n", r.Machine)
	fmt.Fprintf(w, "shape\tB %d, H %d, Hkv %d, N %d, M %d, D %d, Dv %d", s.B, s.H, s.Hkv, s.N, s.M, s.D, s.Dv)
	if s.Causal {
		fmt.Fprint(w, ", causal")
	}
	fmt.Fprintf(w, "\nmechanism\t%s", r.Mechanism)
	if r.Degree > 0 {
		fmt.Fprintf(w, ", order %d", r.Degree)
	}
	if r.Features > 0 {
		fmt.Fprintf(w, ", F = %d packed features", r.Features)
	}
	fmt.Fprintln(w)
	r.printHere(w)
	r.printTaylorShift(w)
	r.printFast(w)
	r.printSweep(w)
	r.printTraining(w)
	return w.Flush()
}

func (r *planReport) printHere(w io.Writer) {
	fmt.Fprint(w, "\nHERE (all heads; a multiply-add is two operations)\n")
	fmt.Fprint(w, "form\tforward\tbackward\tbytes a worker\tpredicted forward\tbackward\terror up to\n")
	for _, f := range r.Forms {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Form, amountText(f.Forward, "FLOP"), amountText(f.Backward, "FLOP"),
			bytesText(f.Bytes), secondsText(f.ForwardSeconds), secondsText(f.BackwardSeconds), boundText(f.Bound))
	}
	if r.Wide != "" {
		fmt.Fprintf(w, "refused\t%s\n", r.Wide)
	}
	fmt.Fprint(w, "errors\tin float32, of an output over κ (max|v| + max|o|), κ = Σ f̄(|a|·|b|) / |g| (docs/numerics.md, the bound)\n")
	fmt.Fprintf(w, "chosen\tforward %s", r.Form)
	if r.Chunk > 0 {
		fmt.Fprintf(w, ", chunks of %d tokens", r.Chunk)
	}
	fmt.Fprintf(w, ": %s\n\tbackward %s: %s\n", r.Why, r.Backward, r.BackwardWhy)
	if x := r.Switch; x != nil {
		fmt.Fprintf(w, "linear from\tN = M = %s on forward, %s backward; by counted operations %s\n",
			lengthText(x.Forward), lengthText(x.Backward), lengthText(x.Counted))
	}
	if st := r.State; st != nil {
		fmt.Fprintf(w, "state\t%s at any length; a cache of keys and values grows by %s a token and is larger from N = %.0f on\n",
			bytesText(st.Bytes), bytesText(st.CacheBytes), math.Ceil(st.BreakEven))
		fmt.Fprintf(w, "a token\t%s with the state\n", amountText(st.Step, "FLOP"))
	}
}

// boundText writes a bound of errors, a dash where there is none.
func boundText(x number) string {
	if math.IsInf(float64(x), 1) {
		return "–"
	}
	return fmt.Sprintf("%.1e", float64(x))
}

func (r *planReport) printTaylorShift(w io.Writer) {
	t := r.TaylorShift
	fmt.Fprintf(w, "\nTAYLORSHIFT (one head, d = %d, N = %d, as published)\n", r.Shape.D, r.Shape.N)
	for _, c := range []struct {
		name  string
		parts attention.Parts
	}{{"ops_dir", t.OpsDirect}, {"ops_eff", t.OpsEfficient}, {"entries_dir", t.EntriesDirect}, {"entries_eff", t.EntriesEfficient}} {
		fmt.Fprintf(w, "%s\t%.0f = %s\n", c.name, c.parts.Total(), partsText(c.parts))
	}
	fmt.Fprintf(w, "N0\t%.0f (bound d² + d + ¾ = %.2f; their programs: N0 + 18d = %.0f)\n", math.Ceil(t.N0), t.N0Bound, math.Ceil(t.N0Measured))
	fmt.Fprintf(w, "N1\t%.0f (bound d²/2 + 2d + ½ = %.1f)\n", math.Ceil(t.N1), t.N1Bound)
}

func (r *planReport) printFast(w io.Writer) {
	f := r.Fast
	if f == nil {
		return
	}
	p := r.Degree
	fmt.Fprintf(w, "\nFAST (all %d heads, p = %d, as published: leading terms without constants)\n", r.Shape.H, p)
	fmt.Fprintf(w, "time\tO(ND^%d): %.3g, causal too\n", p+1, f.Time)
	fmt.Fprintf(w, "memory\tO(ND^%d + D^%d): %.3g; causal O(ND^%d): %.3g\n", p, p+1, f.Memory, p+1, f.CausalMemory)
	fmt.Fprintf(w, "own gradient\tO(ND^%d): %.3g as printed; what is kept (q̂, k̂, v, F, G) is O(ND): %.3g\n", p-1, f.GradientPrinted, f.GradientMemory)
}

func (r *planReport) printSweep(w io.Writer) {
	if len(r.Sweep) == 0 {
		return
	}
	fmt.Fprintf(w, "\nHEADS THAT SHARE A WIDTH OF %d (N = %d)\n", r.Width, r.Shape.N)
	fmt.Fprint(w, "H\tD\tTaylorShift ops_eff\tentries_eff\tFAST time\there\tform\tpredicted\n")
	for _, h := range r.Sweep {
		fast := "-"
		if h.Fast > 0 {
			fast = fmt.Sprintf("%.3g", h.Fast)
		}
		fmt.Fprintf(w, "%d\t%d\t%.4g\t%.4g\t%s\t%s\t%s\t%s\n", h.Heads, h.D, h.Ops, h.Entries, fast,
			amountText(h.Forward, "FLOP"), h.Form, secondsText(h.Seconds))
	}
}

func (r *planReport) printTraining(w io.Writer) {
	t := r.Training
	if t == nil {
		return
	}
	fmt.Fprintf(w, "\nTRAINING (%.4g parameters, %.4g tokens)\n", t.Parameters, t.Tokens)
	fmt.Fprintf(w, "weights\t%.3g FLOP = %.4g PF-days\n", t.Weights, t.PFDays)
	if t.Attention > 0 {
		fmt.Fprintf(w, "attention\t%.3g FLOP\n", t.Attention)
	} else {
		fmt.Fprint(w, "attention\tnot counted: --layers adds that of the shape above\n")
	}
	fmt.Fprintf(w, "here\t%s hours (predicted)\n", amountText(t.Hours, ""))
}

// lengthText writes a number of tokens; 0 is one beyond all that are looked at.
func lengthText(n int) string {
	if n == 0 {
		return "1e9 and more"
	}
	return strconv.Itoa(n)
}

func partsText(parts attention.Parts) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = fmt.Sprintf("%.0f %s", p.Count, p.What)
	}
	return strings.Join(list, " + ")
}

// amountText writes x with a prefix of the SI, three digits.
func amountText(x float64, unit string) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G", "T", "P", "E"} {
		if x < 999.5 {
			break
		}
		x, prefix = x/1000, p
	}
	return strings.TrimSpace(threeDigits(x) + " " + prefix + unit)
}

// bytesText writes a number of bytes; zero is what is not known.
func bytesText(x float64) string {
	if x == 0 {
		return "-"
	}
	unit := "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	return threeDigits(x) + " " + unit
}

// secondsText writes a time; zero is what is not known.
func secondsText(s float64) string {
	switch {
	case s == 0:
		return "-"
	case s < 0.9995e-3:
		return threeDigits(s*1e6) + " µs"
	case s < 0.9995:
		return threeDigits(s*1e3) + " ms"
	case s < 3600:
		return threeDigits(s) + " s"
	}
	return threeDigits(s/3600) + " h"
}

// threeDigits writes x with three digits, or with all before the point.
func threeDigits(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}
