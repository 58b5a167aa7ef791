package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// randomFeatures are the subjects of rfa.
func randomFeatures() (list []subject) {
	for _, set := range []map[string]string{
		{},
		{"features": "7", "tau": "2", "norm": "none", "eps": "1e-3", "seed": "3"},
		{"features": "24", "gate": "true"},
		{"kernel": "arccos", "features": "9", "eps": "1e-6", "gate": "true"},
		{"kernel": "arccos", "seed": "1"},
		{"form": "code"},
		{"form": "code-cross", "features": "5", "tau": "0.25"},
		{"form": "code-masked", "features": "7"},
		{"features": "1", "eps": "1e-3"}, // fewer than D
	} {
		label := "rfa"
		for _, key := range []string{"kernel", "features", "tau", "norm", "eps", "gate", "form"} {
			if v := set[key]; v != "" {
				label += fmt.Sprintf(" %s=%s", key, v)
			}
		}
		s := subject{label: label, name: "rfa", learns: true, o: Options{Width: streamed.d, Set: set},
			book: oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Coef: []float64{0, 1}, Gated: set["gate"] == "true"}}
		tau, shortest := 1.0, -1.0
		fmt.Sscan(set["tau"], &tau)
		fmt.Sscan(set["eps"], &s.book.Eps)
		switch set["form"] {
		case "code":
			s.book.Norm, s.book.Floor, shortest = oracle.NoNorm, 1, 1e-3
		case "code-cross":
			s.book.Norm, s.book.Floor, s.book.FloorSize, shortest = oracle.NoNorm, 1, true, 1e-3
		case "code-masked":
			s.book.Norm, s.book.Floor, s.book.FloorSize, shortest = oracle.NoNorm, 1e-3, true, 1e-3
		}
		if set["norm"] == "none" {
			s.book.Norm = oracle.NoNorm
		}
		s.features = func(p numbers, d int) oracle.Features {
			heads := len(p["sigma"]) / d
			all := rowsOf(p["R"], d)
			f := &oracle.RandomFeatures{Sigma: p["sigma"], Tau: tau, Arccos: set["kernel"] == "arccos", Shortest: shortest, Factor: 0.1}
			if shortest < 0 {
				f.Factor = 1 / math.Sqrt(float64(len(all)/heads))
			}
			for h := range heads {
				n := len(all) / heads
				f.R = append(f.R, all[h*n:][:n])
			}
			return f
		}
		list = append(list, s)
	}
	return list
}

// TestSincosIsAccurate allows the rounding of the result, half of a unit, and a tenth of that
// for what comes before it, beside which the smallest sines are measured from 0.
func TestSincosIsAccurate(t *testing.T) {
	x := []float32{0, 1e-30, -1e-5, 0.785, -0.786, 1.5707964, 3.1415927, -3, 7.5, 100.25, -4096.5, 3e5, 1e7, -1e20}
	key := rng.New(8)
	for i := range uint64(1 << 14) {
		x = append(x, float32(math.Exp2(8*key.Normal(i))*(1-2*float64(key.Uint64(i)&1))))
	}
	sin, cos := make([]float32, len(x)), make([]float32, len(x))
	sincos(sin, cos, x)
	for i, v := range x {
		s, c := math.Sincos(float64(v))
		for _, y := range [][2]float64{{float64(sin[i]), s}, {float64(cos[i]), c}} {
			if err := math.Abs(y[0] - y[1]); err > 0.55*0x1p-23*math.Max(math.Abs(y[1]), 0x1p-20) {
				t.Errorf("of %v: %v, want %v", v, y[0], y[1])
			}
		}
	}
	in := []float32{float32(math.Inf(1)), float32(math.NaN())}
	if sincos(in, in, in); in[0] == in[0] || in[1] == in[1] {
		t.Errorf("of Inf and NaN: %v", in)
	}
}

// The mean product of features is exp(-|q̂-k̂|²/2τ²), and for relu features the kernel of
// Cho and Saul 2009: (sin θ + (π-θ)·cos θ)/2π.
func TestRandomFeaturesApproachTheirKernels(t *testing.T) {
	const d, n = 6, 5
	x := []float64{}
	for i := range uint64(2 * n * d) {
		x = append(x, rng.New(5).Normal(i))
	}
	rows := rowsOf(x, d)
	for i := range rows {
		length := scratch.Norm2(rows[i])
		for c := range rows[i] {
			rows[i][c] /= length
		}
	}
	for _, set := range []map[string]string{{"features": "16384", "tau": "0.75"}, {"features": "16384", "kernel": "arccos"}} {
		s, err := rfaSpec[float64](newReader(&rfa, &Options{Width: d, Set: set}))
		if err != nil {
			t.Fatal(err)
		}
		phi := func(row []float64) []float64 {
			ar := arena.Acquire()
			defer ar.Release()
			b := attention.FeatureBlock[float64]{Scratch: arena.Of[float64]{Arena: ar}, D: d, N: 1, Stride: kernel.Lanes}
			b.X, b.Y = make([]float64, d*b.Stride), make([]float64, s.Features.Dim(d)*b.Stride)
			for c, v := range row {
				b.X[c*b.Stride] = v
			}
			s.Features.Map(&b)
			var y []float64
			for r := range s.Features.Dim(d) {
				y = append(y, b.Y[r*b.Stride])
			}
			return y
		}
		for i := range n {
			var along, apart, got float64
			for c, v := range rows[i] {
				along += v * rows[n+i][c]
				apart += (v - rows[n+i][c]) * (v - rows[n+i][c])
			}
			a, b := phi(rows[i]), phi(rows[n+i])
			for f := range a {
				got += a[f] * b[f]
			}
			want := math.Exp(-apart / (2 * 0.75 * 0.75))
			if set["kernel"] == "arccos" {
				angle := math.Acos(along)
				want = (math.Sin(angle) + (math.Pi-angle)*along) / (2 * math.Pi)
			}
			// A mean of 16384 terms of size 1 wanders by no more than 1/128 times
			// their deviation: four of these.
			if math.Abs(got-want) > 4./128 {
				t.Errorf("%v: pair %d has the weight %.4f, want %.4f", set, i, got, want)
			}
		}
	}
}

// Features of either sign may cancel; such rows are counted. The floor of the authors'
// program bounds such rows instead and shrinks them. Rows of form=paper sum to one.
func TestRFACountsRowsThatCancel(t *testing.T) {
	const d = 2
	c := &attention.Call[float64]{Q: tensor.NewHeads[float64](1, 1, 2, d), K: tensor.NewHeads[float64](1, 1, 2, d), V: tensor.NewHeads[float64](1, 1, 2, 1), Causal: true}
	copy(c.Q.Data, []float64{1, 0, 1, 0})
	copy(c.K.Data, []float64{-1, 0, 1, 0})
	copy(c.V.Data, []float64{1, 1})
	for _, x := range []struct {
		form string
		o    [2]float64
		weak int64
	}{
		// Angles of -π and 0 between rows: weights cos(π) = -1, and 1 beside it.
		{"paper", [2]float64{1, math.NaN()}, 2},
		{"code", [2]float64{-0.01, 0}, 0},
		{"code-cross", [2]float64{-0.01, 0}, 0},
		{"code-masked", [2]float64{-1, 0}, 0},
	} {
		m, err := New[float64]("rfa", Options{Width: d, Set: map[string]string{"features": "1", "form": x.form}})
		if err != nil {
			t.Fatal(err)
		}
		size := 1.0
		if x.form != "paper" {
			size = 1 + 1e-3 // of rows over their length and that
		}
		copy(m.Constants().All()[0].Data, []float64{math.Pi / 2 * size, 0})
		r := forward(t, m, c)
		for i, want := range x.o {
			if got := r.o.Data[i]; !math.IsNaN(want) && math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: output %d is %v, want %v", x.form, i, got, want)
			}
		}
		if r.keep.WeakCount != x.weak {
			t.Errorf("%s: %d weak rows, want %d", x.form, r.keep.WeakCount, x.weak)
		}
	}
}

// With gates of 1 no key has entered, and with one of 0 nothing before it is left.
func TestGateOfZeroForgetsEarlierTokens(t *testing.T) {
	m, err := New[float32]("rfa", Options{Width: 8, Set: map[string]string{"gate": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	sh := shape{b: 1, h: 1, hkv: 1, n: 6, m: 6, d: 8, dv: 3, causal: true, decay: 1}
	oc, do := sh.call(70)
	copy(oc.LogG.Data, []float64{0, 0, -0.5, 0, -1000, -0.25})
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}, {attention.Step, 2}} {
		c := callIn[float32](oc)
		c.Form, c.Chunk = f.form, f.chunk
		o := output(c)
		if err := m.Forward(o, c, nil); err != nil {
			t.Fatal(err)
		}
		row := func(i int) []float32 { return o.Head(0, 0).Row(i) }
		v := c.V.Head(0, 0)
		for e := range sh.dv {
			if row(0)[e] != 0 || row(1)[e] != 0 {
				t.Errorf("%v: what nothing has entered answers %v, %v", f, row(0), row(1))
			}
			for i, j := range map[int]int{2: 2, 3: 2, 4: 4} { // one key alone
				if x := row(i)[e] - v.Row(j)[e]; x > 1e-6 || x < -1e-6 {
					t.Errorf("%v: query %d is answered with %v, not value %d, %v", f, i, row(i), j, v.Row(j))
				}
			}
		}
		if f.form == attention.Step {
			continue
		}
		r := both(t, m, c, in[float32](do))
		if r.keep.WeakCount != 2 || r.keep.WeakAt != [3]int{} {
			t.Errorf("%v: %d weak rows, the first %v", f, r.keep.WeakCount, r.keep.WeakAt)
		}
		for _, x := range [][]float32{r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data, r.g.DLogG.Data, r.tau} {
			for _, y := range x {
				if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
					t.Fatalf("%v: a gradient is %v", f, y)
				}
			}
		}
	}
}

// The gradient of a gate covers the key that enters and the sums that it keeps.
func TestGradientsOfGatesAreFiniteDifferences(t *testing.T) {
	for _, s := range randomFeatures() {
		if !s.book.Gated {
			continue
		}
		sh := shape{b: 1, h: 2, hkv: 1, n: 5, m: 5, d: 8, dv: 3, causal: true, decay: 1, mask: true}
		oc, do := sh.call(71)
		m, _ := build[float64](t, s, sh.h)
		for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}} {
			c := callIn[float64](oc)
			c.Form, c.Chunk = f.form, f.chunk
			r := both(t, m, c, do)
			want := check.NumericGradient(func() float64 {
				var sum float64
				for i, x := range forward(t, m, c).o.Data {
					sum += x * do.Data[i]
				}
				return sum
			}, c.LogG.Data)
			if e := check.ErrorRatio(r.g.DLogG.Data, want, 1e-6*(1+check.MaxAbs(want))); e > 1 {
				t.Errorf("%s, %v: dlog_g differs from finite differences by %.3g limits", s.label, f, e)
			}
		}
	}
}

func TestRFARefusesSettingsThatDoNotFit(t *testing.T) {
	for _, set := range []map[string]string{
		{"kernel": "cosine"}, {"features": "0"}, {"tau": "0"}, {"norm": "max"}, {"gate": "maybe"}, {"form": "program"},
		{"form": "code", "gate": "true"}, {"form": "code", "kernel": "arccos"}, {"form": "code-cross", "eps": "1"}, {"form": "code-masked", "norm": "none"},
	} {
		if _, err := New[float32]("rfa", Options{Width: 8, Set: set}); err == nil {
			t.Errorf("%v is taken", set)
		}
	}
	m, err := New[float32]("rfa", Options{Width: 8, Heads: 2, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Traits().Decay {
		t.Error("form=code says that it takes a decay")
	}
	sh := shape{b: 1, h: 2, hkv: 1, n: 4, m: 4, d: 8, dv: 3, causal: true, decay: 1}
	oc, _ := sh.call(72)
	c := callIn[float32](oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("form=code takes log_g")
	}
	sh.h, sh.decay = 3, 0
	oc, _ = sh.call(72)
	c = callIn[float32](oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("features of 2 heads take a call of 3")
	}
}

// Rows that are divided by their length give the same, however large they are.
func TestRFAOfLargeRowsIsOfTheirDirections(t *testing.T) {
	m, err := New[float32]("rfa", Options{Width: 8, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(size float64) (o, dq []float32) {
		oc, do := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 8, dv: 3, causal: true}.call(109)
		for i := range oc.Q.Data {
			oc.Q.Data[i], oc.K.Data[i] = oc.Q.Data[i]*size, oc.K.Data[i]*size
		}
		r := both(t, m, callIn[float32](oc), in[float32](do))
		for i := range r.g.DQ.Data {
			r.g.DQ.Data[i] *= float32(size)
		}
		return r.o.Data, r.g.DQ.Data
	}
	o, dq := run(1e12)
	for _, size := range []float64{1e18, 1e20, 1e35} {
		large, dlarge := run(size)
		for i := range o {
			if d := math.Abs(float64(large[i] - o[i])); !(d <= 1e-5) {
				t.Fatalf("rows of %g: output %d is %v, want %v", size, i, large[i], o[i])
			}
		}
		for i := range dq {
			if d := math.Abs(float64(dlarge[i] - dq[i])); !(d <= 1e-4*check.MaxAbs(dq)) {
				t.Fatalf("rows of %g: gradient %d is %v, want %v", size, i, dlarge[i], dq[i])
			}
		}
	}
}
