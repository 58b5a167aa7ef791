//go:build float64

package mechanism

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// drawRows sets rows to normal ones of a spectrum of deviations along axes.
func drawRows(x tensor.Heads, axes []float64, deviation func(i int) float64, key rng.Key) {
	for i := range x.N {
		row := x.Head(0, 0).Row(i)
		clear(row)
		for c := range x.D {
			a := deviation(c+1) * key.Normal(uint64(i*x.D+c))
			for j := range row {
				row[j] += a * axes[c*x.D+j]
			}
		}
	}
}

// synthetic returns a call of n tokens of width 16 whose queries and keys have these
// deviations along the same axes, drawn at random.
func synthetic(n int, deviation func(i int) float64) *attention.Call {
	const d = 16
	g := make([]float64, d*d)
	for i := range g {
		g[i] = rng.New(3).Normal(uint64(i))
	}
	axes := orthogonalFactor(g, d)
	c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
	drawRows(c.Q, axes, deviation, rng.New(5).Fold(1))
	drawRows(c.K, axes, deviation, rng.New(5).Fold(2))
	drawRows(c.V, axes, func(int) float64 { return 1 }, rng.New(5).Fold(3))
	return c
}

func truncatedOf(t *testing.T, order, d, heads int, settings ...string) attention.Mechanism {
	t.Helper()
	o := Options{Order: order, Width: d, Heads: heads, Set: map[string]string{}}
	for i := 0; i < len(settings); i += 2 {
		o.Set[settings[i]] = settings[i+1]
	}
	m, err := New("fastmax-truncated", o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func judged(t *testing.T, m attention.Mechanism, c *attention.Call) Truncation {
	t.Helper()
	list, err := MeasureTruncation(m, c)
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

func TestTruncationIsMeasuredOverWhatQueriesSee(t *testing.T) {
	const n = 8
	whole := synthetic(n, func(int) float64 { return 1 })
	m := truncatedOf(t, 4, 16, 1, "keep", "8")
	alike := func(what string, a, b Truncation) {
		t.Helper()
		if check.ErrorRatio([]float64{a.Error, a.WholeError, a.MaxDropped}, []float64{b.Error, b.WholeError, b.MaxDropped}, 1e-12) > 1 {
			t.Errorf("%s: %+v, want %+v", what, a, b)
		}
	}
	short, masked := *whole, *whole
	short.K, short.V = whole.K.Tokens(0, 6), whole.V.Tokens(0, 6)
	masked.KeyMask = []bool{true, true, true, true, true, true, false, false}
	alike("a mask", judged(t, m, &masked), judged(t, m, &short))
	lengths := *whole
	lengths.KeyLens = []int64{6}
	alike("a length", judged(t, m, &lengths), judged(t, m, &short))
	pairs := *whole
	for i := range n * n {
		pairs.AttnKeep = append(pairs.AttnKeep, i%n < 6)
	}
	alike("kept pairs", judged(t, m, &pairs), judged(t, m, &short))
	packed, rows := *whole, *whole
	packed.CuQ, packed.CuK, packed.Causal = []int64{0, 4, 8}, []int64{0, 4, 8}, true
	for _, x := range []*tensor.Heads{&rows.Q, &rows.K, &rows.V} {
		*x = tensor.HeadsOf(x.Data, 2, 1, 4, 16)
	}
	rows.Causal = true
	alike("packed sequences", judged(t, m, &packed), judged(t, m, &rows))
}

// Where the data has few large axes, 153 monomials up to degree 4 are worth more
// than the 153 of degree 2; where all axes are alike they are the same. Scores are
// 2·cos, as in the table of docs/mechanisms.md.
func TestCalibrationFindsAxesAndMonomials(t *testing.T) {
	for _, x := range []struct {
		name        string
		deviation   func(i int) float64
		least, most float64 // error relative to the error of T_2
	}{
		{"isotropic", func(int) float64 { return 1 }, 0.99, 1.01},
		{"1/sqrt(i)", func(i int) float64 { return 1 / math.Sqrt(float64(i)) }, 0.3, 0.6},
		{"1/i", func(i int) float64 { return 1 / float64(i) }, 0.1, 0.25},
	} {
		c := synthetic(512, x.deviation)
		m := truncatedOf(t, 0, 16, 1, "norm", "unit", "scale", "2")
		before := judged(t, m, c)
		if math.Abs(before.Error-before.PlainError) > 1e-12 || before.NegativeShare != 0 || before.Monomials != 153 || before.AllMonomials != 4845 {
			t.Errorf("%s: as it starts it is not T_2: %+v", x.name, before)
		}
		if err := CalibrateTruncation(m, c); err != nil {
			t.Fatal(err)
		}
		after := judged(t, m, c)
		t.Logf("%s: %+v", x.name, after)
		if share := after.Error / after.PlainError; share < x.least || share > x.most {
			t.Errorf("%s: error %.4f, T_2 has %.4f", x.name, after.Error, after.PlainError)
		}
		if after.NegativeShare > 1e-4 {
			t.Errorf("%s: %g of the weights are negative", x.name, after.NegativeShare)
		}
		for _, s := range []Truncation{before, after} {
			if !(s.MaxDropped > 0 && s.MaxDropped <= s.Bound) {
				t.Errorf("%s: %g is dropped of a pair, the bound is %g", x.name, s.MaxDropped, s.Bound)
			}
		}
	}
}

// The bound holds for whatever rotation and monomials, and is 0 where all are kept.
func TestTruncationBoundHolds(t *testing.T) {
	c := synthetic(40, func(i int) float64 { return 1 / float64(i) })
	for _, settings := range [][]string{
		{"norm", "none", "keep", "1"}, {"norm", "none", "keep", "50", "scale", "3"}, {"keep", "20"}, {"norm", "bounded", "keep", "300"}, {"norm", "unit", "keep", "700", "scale", "5"},
	} {
		m := truncatedOf(t, 3, 16, 1, settings...)
		for range 2 {
			if s := judged(t, m, c); !(s.MaxDropped <= s.Bound) || !(s.MaxDropped > 0) || s.Bound > 3*s.MaxWeight+1e3*s.MaxDropped {
				t.Errorf("%v: %g is dropped, the bound is %g of weights up to %g", settings, s.MaxDropped, s.Bound, s.MaxWeight)
			}
			if err := CalibrateTruncation(m, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := truncatedOf(t, 3, 16, 1, "keep", "969", "norm", "unit")
	if err := CalibrateTruncation(m, c); err != nil {
		t.Fatal(err)
	}
	if s := judged(t, m, c); s.Monomials != s.AllMonomials || s.MaxDropped > 1e-12 || s.Bound > 1e-6 || math.Abs(s.Error-s.WholeError) > 1e-12 {
		t.Errorf("all are kept: %+v", s)
	}
}

// As it starts it is fastmax of degree 2, whatever its order, and where all
// monomials are kept of that order.
func TestTruncatedStartsAsFastmax(t *testing.T) {
	c := synthetic(30, func(i int) float64 { return 1 / math.Sqrt(float64(i)) })
	for _, x := range []struct{ order, same int }{{2, 2}, {3, 2}, {4, 2}, {1, 1}} {
		for _, causal := range []bool{false, true} {
			c.Causal = causal
			f, err := New("fastmax", Options{Order: x.same, Set: map[string]string{"scale": "1/sqrt(D)"}})
			if err != nil {
				t.Fatal(err)
			}
			var out [2]tensor.Heads
			for i, m := range []attention.Mechanism{f, truncatedOf(t, x.order, 16, 1)} {
				out[i] = tensor.NewHeads(1, 1, 30, 16)
				if err := m.Forward(out[i], c, nil); err != nil {
					t.Fatal(err)
				}
			}
			for i, o := range out[0].Data {
				// Degree 1 has denominators near 0.
				if math.Abs(o-out[1].Data[i]) > 1e-9*(1+math.Abs(o)) {
					t.Fatalf("order %d, causal %t: %g and %g", x.order, causal, o, out[1].Data[i])
				}
			}
		}
	}
}

// Each key head has axes of its own, which its queries share, and they are those
// that it has alone.
func TestCalibrationTreatsHeadsApart(t *testing.T) {
	const h, kv, n, d = 4, 2, 50, 16
	c := &attention.Call{Q: tensor.NewHeads(1, h, n, d), K: tensor.NewHeads(1, kv, n, d), V: tensor.NewHeads(1, kv, n, d), Causal: true}
	alone := func() *attention.Call {
		return &attention.Call{Q: tensor.NewHeads(1, 2, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d), Causal: true}
	}
	var parts []*attention.Call
	for i := range kv {
		p := alone()
		for j, x := range []*tensor.Heads{&p.Q, &p.K, &p.V} {
			for e := range x.Data {
				x.Data[e] = rng.New(uint64(i)).Fold(uint64(j)).Normal(uint64(e)) / float64(1+(e+i)%d)
			}
		}
		copy(c.Q.Head(0, 2*i).Data, p.Q.Head(0, 0).Data)
		copy(c.Q.Head(0, 2*i+1).Data, p.Q.Head(0, 1).Data)
		copy(c.K.Head(0, i).Data, p.K.Head(0, 0).Data)
		copy(c.V.Head(0, i).Data, p.V.Head(0, 0).Data)
		parts = append(parts, p)
	}
	forward := func(m attention.Mechanism, c *attention.Call) tensor.Heads {
		if err := CalibrateTruncation(m, c); err != nil {
			t.Fatal(err)
		}
		out := tensor.NewHeads(1, c.Q.H, n, d)
		if err := m.Forward(out, c, nil); err != nil {
			t.Fatal(err)
		}
		return out
	}
	all := truncatedOf(t, 4, d, h, "keep", "40")
	together := forward(all, c)
	for i, p := range parts {
		m := truncatedOf(t, 4, d, 2, "keep", "40")
		out := forward(m, p)
		if !slices.Equal(out.Data, together.Data[2*i*n*d:][:2*n*d]) {
			t.Errorf("key head %d has other outputs alone", i)
		}
	}
	list, err := all.Constants().Get("monomials")
	if err != nil {
		t.Fatal(err)
	}
	one := len(list.Data) / h
	if slices.Equal(list.Data[:one], list.Data[2*one:3*one]) || !slices.Equal(list.Data[:one], list.Data[one:2*one]) {
		t.Error("heads do not have the monomials of their key heads")
	}
	// One set for all heads is calibrated by all of them.
	forward(truncatedOf(t, 4, d, 1, "keep", "40"), c)
}

func TestCalibrationRefusesWhatDoesNotFit(t *testing.T) {
	c := synthetic(4, func(int) float64 { return 1 })
	for name, want := range map[string]string{"fastmax": "has nothing to calibrate"} {
		m, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := CalibrateTruncation(m, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := MeasureTruncation(m, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wide := &attention.Call{Q: tensor.NewHeads(1, 1, 2, 128), K: tensor.NewHeads(1, 1, 2, 128), V: tensor.NewHeads(1, 1, 2, 128)}
	if err := CalibrateTruncation(truncatedOf(t, 4, 128, 1), wide); err == nil || !strings.Contains(err.Error(), "order: 4 has 12082785 monomials") {
		t.Error(err)
	}
	for _, x := range []struct {
		list []float64
		want string
	}{
		{[]float64{0, 0, 1, 0, 1, 0}, "row 2 of head 0 does not follow"},
		{[]float64{0, 0, 2, 1, 3, 0}, "row 1 of head 0 is [2 1]"},
		{[]float64{0, 0, 0, 1, 3, 0}, "row 1 of head 0 is [0 1]"},
		{[]float64{0, 0, 1, 0, 17, 0}, "row 2 of head 0 is [17 0]"},
		{[]float64{0, 0, 0.5, 0, 3, 0}, "row 1 of head 0 is [0.5 0]"},
		{[]float64{0, 0, 1, 0, math.NaN(), 0}, "row 2 of head 0 is [NaN 0]"},
	} {
		m := truncatedOf(t, 2, 16, 1, "keep", "3")
		list, err := m.Constants().Get("monomials")
		if err != nil {
			t.Fatal(err)
		}
		copy(list.Data, x.list)
		if err := m.Forward(tensor.NewHeads(1, 1, 4, 16), c, nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v", x.list, err)
		}
	}
}
