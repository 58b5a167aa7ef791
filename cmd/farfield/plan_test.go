package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/cli/plan"
	"github.com/farfield-ml/farfield/mechanism"
)

func planOf(t *testing.T, args string) plan.Report {
	t.Helper()
	var r plan.Report
	d := json.NewDecoder(strings.NewReader(works(t, append([]string{"plan", "--json"}, strings.Fields(args)...)...)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPlan(t *testing.T) {
	r := planOf(t, "--n 1e5 --d 32 --heads 4 --batch 2")
	if r.Features != 561 || r.Degree != 2 || r.Form != "linear" || r.Shape.N != 100000 || r.Shape.M != 100000 || r.Shape.Dv != 32 {
		t.Errorf("%+v", r)
	}
	if math.Ceil(r.TaylorShift.N0) != 1057 || math.Ceil(r.TaylorShift.N1) != 574 {
		t.Errorf("N0 %g, N1 %g", r.TaylorShift.N0, r.TaylorShift.N1)
	}
	if r.Totals.OpsEfficient != 1e5*(4*32*32*32+10*32*32+9*32+4) {
		t.Errorf("ops_eff is %g", r.Totals.OpsEfficient)
	}
	// F(Dv+1) sums a head, and D+Dv numbers of a cache for every token.
	if r.State == nil || r.State.Sums != 4*4*561*33 || r.State.CacheBytes != 4*4*64 {
		t.Errorf("state %+v", r.State)
	}
	if len(r.Forms) != 2 || r.Forms[0].Forward < 10*r.Forms[1].Forward || r.Forms[1].ForwardSeconds <= 0 {
		t.Errorf("forms %+v", r.Forms)
	}
	// The direct form adds 1e5 keys one after another, the linear one far fewer numbers.
	if d, l := r.Forms[0].Bound, r.Forms[1].Bound; !(d > 1e5*0x1p-24) || !(l > 561*0x1p-24) || l > d/10 {
		t.Errorf("errors up to %g and %g", d, l)
	}
	if x := r.Switch; x == nil || x.Counted != 562 || !around(x.Forward, x.Counted) || !around(x.Backward, x.Counted) {
		t.Errorf("linear from %+v on", x)
	}
	if r.Backward != "linear" || !strings.Contains(r.Reason, "times as long") || !strings.Contains(r.BackwardReason, "times as long") {
		t.Errorf("forward %s: %s; backward %s: %s", r.Form, r.Reason, r.Backward, r.BackwardReason)
	}
	for _, f := range r.Forms {
		if f.BackwardSeconds < f.ForwardSeconds {
			t.Errorf("%s backward takes %g s, forward %g s", f.Form, f.BackwardSeconds, f.ForwardSeconds)
		}
	}
	if c := planOf(t, "--n 1e5 --d 32 --causal").Switch; c.Forward <= r.Switch.Forward || c.Backward <= r.Switch.Backward || c.Counted <= r.Switch.Counted {
		t.Errorf("causal linear from %+v on, unmasked %+v", c, r.Switch)
	}
}

// The plan of multipole has the time of softmax, and the length from which it is faster.
func TestPlanComparesWithSoftmax(t *testing.T) {
	r := planOf(t, "--mechanism multipole --n 8192 --d 64")
	if r.Softmax == nil || r.Softmax.From < 100 || r.Softmax.From > 8192 || !(r.Forms[0].ForwardSeconds < r.Softmax.Seconds) {
		t.Errorf("softmax %+v, multipole %+v", r.Softmax, r.Forms)
	}
	if n := planOf(t, "--mechanism softmax --n 64"); n.Softmax != nil {
		t.Errorf("softmax has itself beside it: %+v", n.Softmax)
	}
}

// Chunks of one token, in which sessions of degree 1 step, have a state of their own.
func TestPlannedStateIsTheStateOfASession(t *testing.T) {
	for _, c := range []struct {
		args  string
		set   map[string]string
		chunk int
	}{
		{"--batch 2", nil, 0},
		{"--heads 4 --mechanism linear", nil, 1},
		{"--mechanism retention", nil, 0},
		{"--set window=8", map[string]string{"window": "8"}, 0},
	} {
		r := planOf(t, c.args+" --causal --d 16")
		m, err := mechanism.New(r.Mechanism, mechanism.Options{Heads: r.Shape.H, Width: 16, Length: r.Shape.M, Set: c.set})
		if err != nil {
			t.Fatal(err)
		}
		state, err := m.NewState(attention.Shape{B: 1, H: r.Shape.H, Hkv: r.Shape.H, D: 16, Dv: 16, Chunk: c.chunk})
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(state.Bytes()); r.State.Bytes != want || r.State.BreakEven != want/r.State.CacheBytes || r.State.Sums >= want {
			t.Errorf("%s: state %+v, a session has %g bytes", c.args, r.State, want)
		}
	}
}

// around reports whether a is within a factor of two of b.
func around(a, b int) bool { return b < 2*a && a < 2*b }

func TestPlanPlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crossover.svg")
	works(t, "plan", "--plot", file, "--set", "scale=1/sqrt(D)")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fastmax of order 2", "unmasked, forward", "causal, backward", "operations counted"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not drawn", want)
		}
	}
}

func TestPlanWithoutLinearForm(t *testing.T) {
	r := planOf(t, "--mechanism softmax")
	if r.Form != "direct" || len(r.Forms) != 1 || r.State != nil || r.Switch != nil || r.FastCosts != nil {
		t.Errorf("%+v", r)
	}
}

func TestPlanSweep(t *testing.T) {
	r := planOf(t, "--width 24 --n 1000")
	var heads []int
	for i, h := range r.Sweep {
		heads = append(heads, h.Heads)
		if h.Heads*h.D != 24 {
			t.Errorf("%d heads of width %d", h.Heads, h.D)
		}
		if i > 0 && (h.Ops >= r.Sweep[i-1].Ops || h.Entries >= r.Sweep[i-1].Entries) {
			t.Errorf("%d heads cost no less than %d", h.Heads, r.Sweep[i-1].Heads)
		}
	}
	if len(heads) != 8 { // 1 2 3 4 6 8 12 24
		t.Errorf("heads are %v", heads)
	}
}

func TestPlanTraining(t *testing.T) {
	r := planOf(t, "--parameters 174.6e9 --tokens 300e9")
	if x := r.Training; x == nil || math.Abs(x.Weights-3.14e23) > 0.005e23 || math.Abs(x.PFDays-3640) > 5 || x.Attention != 0 || x.Hours <= 0 {
		t.Errorf("%+v", r.Training)
	}
	if x := planOf(t, "--n 1e10 --batch 1e9 --parameters 1e9 --tokens 1e9 --layers 2").Training; !(x.Attention > 0) {
		t.Errorf("attention takes %g operations", x.Attention)
	}
	with := planOf(t, "--parameters 174.6e9 --tokens 300e9 --layers 96 --heads 96 --d 128 --n 2048 --causal --mechanism softmax")
	if share := with.Training.Attention / with.Training.Weights; share < 0.005 || share > 0.05 {
		t.Errorf("attention is %g of the weights", share)
	}
	t5 := planOf(t, "--parameters 11e9 --tokens 1e12 --encoder-decoder")
	if t5.Training.Weights != 3.3e22 {
		t.Errorf("T5-11B: %g", t5.Training.Weights)
	}
}

func TestPlanText(t *testing.T) {
	out := works(t, "plan", "--published", "--d", "8", "--width", "16", "--parameters", "1e9", "--tokens", "2e9")
	for _, want := range []string{"machine", "N0 ", " 73 (", "N1 ", " 47 (", "72.75", "48.5", "QKᵀ", "O(ND^3)", "F = 45", "HEADS THAT SHARE A WIDTH OF 16", "PF-days", "linear from"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not printed:\n%s", want, out)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{`--n: "0": needs a whole number from 1 to 1e15`, "--n 0"},
		{`"1.5": needs a whole number`, "--d 1.5"},
		{`"many": needs a whole number`, "--heads many"},
		{`"1e16": needs a whole number`, "--n 1e16"},
		{`"-1": needs a number above 0`, "--parameters=-1 --tokens 1"},
		{`--plot: the suffix of a.pdf is ".pdf"`, "--plot a.pdf"},
		{`--plot: softmax has no linear form`, "--plot a.svg --mechanism softmax"},
		{`"NaN": needs a number above 0`, "--parameters NaN --tokens 1"},
		{"--parameters and --tokens: one is given without the other", "--parameters 1e9"},
		{"--layers: needs --parameters", "--layers 3"},
		{"--parameters, --tokens: 1e+300 and 1e+300 take more operations", "--parameters 1e300 --tokens 1e300"},
		{"--kv-heads: 3 do not divide the 4 of --heads", "--heads 4 --kv-heads 3"},
		{"softmax: order 2: it has no order", "--mechanism softmax --order 2"},
		{`mechanism "fast": unknown`, "--mechanism fast"},
		{"needs true or false", "--set bounded=yes"},
	} {
		refuses(t, c.want, append([]string{"plan"}, strings.Fields(c.args)...)...)
	}
}

// A width whose sums are beyond the limit has a line with both numbers in place of a
// linear form, and calls and models that need one are refused with it.
func TestFeaturesBeyondTheLimitAreRefused(t *testing.T) {
	const want = "fastmax: the linear form of degree 33 has 95548245 features for D = 8, whose sums with Dv = 8 are 1528771920 numbers a head, at most 1073741824"
	r := planOf(t, "--mechanism fastmax --order 33 --n 1e9 --d 8")
	if r.LinearRefusal != want || len(r.Forms) != 1 || r.Form != "direct" || r.State != nil || r.Switch != nil {
		t.Errorf("plan: %+v", r)
	}
	if text := works(t, "plan", "--mechanism", "fastmax", "--order", "33", "--n", "1000", "--d", "8"); !strings.Contains(text, want+"\n") {
		t.Errorf("plan prints %s", text)
	}
	arrays := written(t, "qkv.npz", normal(t, "q", 1, 5, 8), normal(t, "k", 2, 5, 8), normal(t, "v", 3, 5, 8))
	out := filepath.Join(t.TempDir(), "o.npz")
	for _, form := range []string{"linear", "step"} {
		refuses(t, want, "attend", "--mechanism", "fastmax", "--order", "33", "--causal", "--form", form, arrays, out)
	}
	refuses(t, want, "attend", "--mechanism", "fastmax", "--order", "33", "--synthetic", "10,8,1", "--memory", "64GiB")
	works(t, "attend", "--mechanism", "fastmax", "--order", "33", "--causal", arrays, out)
	data := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(data, []byte(strings.Repeat("one two three\n", 50)), 0o666); err != nil {
		t.Fatal(err)
	}
	run := filepath.Join(t.TempDir(), "run")
	refuses(t, want, "train", "--data", data, "--preset", "tiny", "--width", "16", "--heads", "2", "--mechanism", "fastmax", "--order", "33", "--steps", "1", "--out", run)
	if _, err := os.Stat(run); err == nil {
		t.Error("the refused run has a folder")
	}
}
