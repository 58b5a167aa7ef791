package plan

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/papercost"
)

// print writes the report for people, with the published costs of the shape if published is set.
func (r *Report) print(out io.Writer, published bool) error {
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
	if published {
		r.printTaylorShift(w)
		r.printFast(w)
	}
	r.printSweep(w)
	r.printTraining(w)
	return w.Flush()
}

func (r *Report) printHere(w io.Writer) {
	fmt.Fprint(w, "\nHERE (all heads; a multiply-add is two operations)\n")
	fmt.Fprint(w, "form\tforward\tbackward\tbytes a worker\tpredicted forward\tbackward\terror up to\n")
	for _, f := range r.Forms {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Form, display.FormatAmount(f.Forward, "FLOP"), display.FormatAmount(f.Backward, "FLOP"),
			display.FormatBytes(f.Bytes), display.FormatSeconds(f.ForwardSeconds), display.FormatSeconds(f.BackwardSeconds), display.FormatBound(f.Bound))
	}
	if r.LinearRefusal != "" {
		fmt.Fprintf(w, "refused\t%s\n", r.LinearRefusal)
	}
	fmt.Fprint(w, "errors\tin float32, of an output over κ (max|v| + max|o|), κ = Σ f̄(|a|·|b|) / |g| (docs/numerics.md, the bound)\n")
	fmt.Fprintf(w, "chosen\tforward %s", r.Form)
	if r.Chunk > 0 {
		fmt.Fprintf(w, ", chunks of %d tokens", r.Chunk)
	}
	fmt.Fprintf(w, ": %s\n\tbackward %s: %s\n", r.Reason, r.Backward, r.BackwardReason)
	if x := r.Switch; x != nil {
		fmt.Fprintf(w, "linear from\tN = M = %s on forward, %s backward; by counted operations %s\n",
			display.FormatLength(x.Forward), display.FormatLength(x.Backward), display.FormatLength(x.Counted))
	}
	if x := r.Softmax; x != nil {
		fmt.Fprintf(w, "softmax\t%s forward; %s is faster from N = M = %s on\n", display.FormatSeconds(x.Seconds), r.Mechanism, display.FormatLength(x.From))
	}
	if st := r.State; st != nil {
		fmt.Fprintf(w, "state\t%s of a session at any length, %s of them sums; a cache of keys and values grows by %s a token and is larger from N = %.0f on\n",
			display.FormatBytes(st.Bytes), display.FormatBytes(st.Sums), display.FormatBytes(st.CacheBytes), math.Floor(st.BreakEven)+1)
		fmt.Fprintf(w, "a token\t%s with the state\n", display.FormatAmount(st.Step, "FLOP"))
	}
}

func (r *Report) printTaylorShift(w io.Writer) {
	t := r.TaylorShift
	fmt.Fprintf(w, "\nTAYLORSHIFT (one head, d = %d, N = %d, as published)\n", r.Shape.D, r.Shape.N)
	for _, c := range []struct {
		name  string
		parts papercost.Parts
	}{{"ops_dir", t.OpsDirect}, {"ops_eff", t.OpsEfficient}, {"entries_dir", t.EntriesDirect}, {"entries_eff", t.EntriesEfficient}} {
		fmt.Fprintf(w, "%s\t%.0f = %s\n", c.name, c.parts.Total(), partsText(c.parts))
	}
	fmt.Fprintf(w, "N0\t%.0f (bound d² + d + ¾ = %.2f; their programs: N0 + 18d = %.0f)\n", math.Ceil(t.N0), t.N0Bound, math.Ceil(t.N0Measured))
	fmt.Fprintf(w, "N1\t%.0f (bound d²/2 + 2d + ½ = %.1f)\n", math.Ceil(t.N1), t.N1Bound)
}

func (r *Report) printFast(w io.Writer) {
	f := r.FastCosts
	if f == nil {
		return
	}
	p := r.Degree
	fmt.Fprintf(w, "\nFAST (all %d heads, p = %d, as published: leading terms without constants)\n", r.Shape.H, p)
	fmt.Fprintf(w, "time\tO(ND^%d): %.3g, causal too\n", p+1, f.Time)
	fmt.Fprintf(w, "memory\tO(ND^%d + D^%d): %.3g; causal O(ND^%d): %.3g\n", p, p+1, f.Memory, p+1, f.CausalMemory)
	fmt.Fprintf(w, "own gradient\tO(ND^%d): %.3g as printed; what is kept (q̂, k̂, v, F, G) is O(ND): %.3g\n", p-1, f.GradientPrinted, f.GradientMemory)
}

func (r *Report) printSweep(w io.Writer) {
	if len(r.Sweep) == 0 {
		return
	}
	fmt.Fprintf(w, "\nHEADS THAT SHARE A WIDTH OF %d (N = %d)\n", r.Width, r.Shape.N)
	fmt.Fprint(w, "H\tD\tTaylorShift ops_eff\tentries_eff\tFAST time\there\tform\tpredicted\n")
	for _, h := range r.Sweep {
		fast := "-"
		if h.FastTime > 0 {
			fast = fmt.Sprintf("%.3g", h.FastTime)
		}
		fmt.Fprintf(w, "%d\t%d\t%.4g\t%.4g\t%s\t%s\t%s\t%s\n", h.Heads, h.D, h.Ops, h.Entries, fast,
			display.FormatAmount(h.Forward, "FLOP"), h.Form, display.FormatSeconds(h.Seconds))
	}
}

func (r *Report) printTraining(w io.Writer) {
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
	fmt.Fprintf(w, "here\t%s hours (predicted)\n", display.FormatAmount(t.Hours, ""))
}

func partsText(parts papercost.Parts) string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = fmt.Sprintf("%.0f %s", p.Count, p.What)
	}
	return strings.Join(list, " + ")
}
