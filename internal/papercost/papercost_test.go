package papercost

import (
	"math"
	"testing"
)

// The table of TaylorShift's page, and what its calculator prints for d = 32.
func TestTaylorShiftCost(t *testing.T) {
	for _, c := range []struct{ d, n0, n1 int }{
		{8, 73, 47}, {16, 273, 159}, {32, 1057, 574}, {64, 4161, 2174}, {128, 16513, 8446},
	} {
		s := TaylorShiftCost(1000, c.d)
		if n0 := int(math.Ceil(s.N0)); n0 != c.n0 {
			t.Errorf("d = %d: N0 is %d, published %d", c.d, n0, c.n0)
		}
		if n1 := int(math.Ceil(s.N1)); n1 != c.n1 {
			t.Errorf("d = %d: N1 is %d, published %d", c.d, n1, c.n1)
		}
		if s.N0 > s.N0Bound || s.N1 > s.N1Bound {
			t.Errorf("d = %d: N0 %g, N1 %g above their bounds %g, %g", c.d, s.N0, s.N1, s.N0Bound, s.N1Bound)
		}
	}
	s := TaylorShiftCost(1, 32)
	if n0, n1 := math.Round(s.N0Bound), math.Round(s.N1Bound); n0 != 1057 || n1 != 577 {
		t.Errorf("the calculator prints 1057 and 577, the bounds are %g and %g", n0, n1)
	}
	if s.N0Measured != s.N0+576 {
		t.Errorf("measured crossover %g, N0 %g", s.N0Measured, s.N0)
	}
}

func TestTaylorShiftPartsAddUp(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		for _, d := range []int{1, 5, 32} {
			s := TaylorShiftCost(n, d)
			N, D := float64(n), float64(d)
			for _, c := range []struct {
				name      string
				got, want float64
			}{
				{"ops_dir", s.OpsDirect.Total(), 4*N*N*D + 6*N*N},
				{"ops_eff", s.OpsEfficient.Total(), N * (4*D*D*D + 10*D*D + 9*D + 4)},
				{"entries_dir", s.EntriesDirect.Total(), D*N + 2*N*N},
				{"entries_eff", s.EntriesEfficient.Total(), D*D*(D+1) + 2*D*N + (D+1)*N + D*D*N},
			} {
				if c.got != c.want {
					t.Errorf("N = %d, d = %d: %s is %g, want %g", n, d, c.name, c.got, c.want)
				}
			}
			// At a crossover the two sides are equal.
			at := func(n float64) (dir, eff float64) { return dirOps(n, D), effOps(n, D) }
			if dir, eff := at(s.N0); math.Abs(dir-eff) > 1e-12*eff {
				t.Errorf("d = %d: at N0 = %g ops are %g and %g", d, s.N0, dir, eff)
			}
			dir, eff := D*s.N1+2*s.N1*s.N1, D*D*(D+1)+(D*D+3*D+1)*s.N1
			if math.Abs(dir-eff) > 1e-12*eff {
				t.Errorf("d = %d: at N1 = %g entries are %g and %g", d, s.N1, dir, eff)
			}
		}
	}
}

func dirOps(n, d float64) float64 { return 4*n*n*d + 6*n*n }
func effOps(n, d float64) float64 { return n * (4*d*d*d + 10*d*d + 9*d + 4) }

func TestTaylorShiftHeads(t *testing.T) {
	const n, width = 1000, 256
	ops1, entries1 := math.Inf(1), math.Inf(1)
	for h := 1; h <= width; h *= 2 {
		ops, entries := TaylorShiftHeads(n, width, h)
		if ops >= ops1 || entries >= entries1 {
			t.Errorf("%d heads: %g operations and %g entries, no fewer than %g and %g", h, ops, entries, ops1, entries1)
		}
		one := TaylorShiftCost(n, width/h)
		if want := float64(h) * one.OpsEfficient.Total(); math.Abs(ops-want) > 1e-12*want {
			t.Errorf("%d heads: %g operations, as single ones %g", h, ops, want)
		}
		if want := float64(h) * one.EntriesEfficient.Total(); math.Abs(entries-want) > 1e-12*want {
			t.Errorf("%d heads: %g entries, as single ones %g", h, entries, want)
		}
		ops1, entries1 = ops, entries
	}
}

func TestFastCost(t *testing.T) {
	c := FastCost(1024, 32, 1, 2)
	// The paper's break-even: N²D = ND³ at N = D².
	if softmax := 1024.0 * 1024 * 32; c.Time != softmax {
		t.Errorf("at N = D² time is %g, softmax %g", c.Time, softmax)
	}
	want := FastOrders{Time: 1024 * 32768, Memory: 1024*1024 + 32768, CausalMemory: 1024 * 32768, GradientPrinted: 32768, GradientMemory: 32768}
	if c != want {
		t.Errorf("p = 2: %+v, want %+v", c, want)
	}
	if c := FastCost(1024, 32, 1, 1); c.GradientPrinted != 1024 || c.GradientMemory != 32768 {
		t.Errorf("p = 1: %g as printed, %g for what is kept", c.GradientPrinted, c.GradientMemory)
	}
	// Four times the heads and twice the channels halve the cost for p = 2.
	if a, b := FastCost(1000, 64, 4, 2), FastCost(1000, 32, 16, 2); b.Time != a.Time/2 {
		t.Errorf("4H and 2C: time %g, before %g", b.Time, a.Time)
	}
}

// The table of training compute in Brown et al. 2020, appendix D, as printed in
// the slides: PF-days and operations of every model.
func TestTrainingFLOPs(t *testing.T) {
	for _, c := range []struct {
		model                  string
		parameters, tokens     float64
		days, flops, tolerance float64 // the printed parameters are rounded
	}{
		{"T5-Small", 60e6, 1e12, 2.08, 1.80e20, 0.005},
		{"T5-11B", 11e9, 1e12, 382, 3.30e22, 0.005},
		{"BERT-Base", 109e6, 250e9, 1.89, 1.64e20, 0.005},
		{"RoBERTa-Large", 355e6, 2e12, 49.3, 4.26e21, 0.005},
		{"GPT-3 Small", 125e6, 300e9, 2.60, 2.25e20, 0.005},
		{"GPT-3 13B", 12.85e9, 300e9, 268, 2.31e22, 0.005},
		{"GPT-3 175B", 174.6e9, 300e9, 3640, 3.14e23, 0.005},
	} {
		flops := TrainingFLOPs(c.parameters, c.tokens, c.model[:2] == "T5")
		if math.Abs(flops-c.flops) > c.tolerance*c.flops {
			t.Errorf("%s: %.3g operations, printed %.3g", c.model, flops, c.flops)
		}
		if days := flops / PFDay; math.Abs(days-c.days) > c.tolerance*c.days {
			t.Errorf("%s: %.3g PF-days, printed %.3g", c.model, days, c.days)
		}
	}
}
