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
	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/rng"
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

func TestRFARefusesSettingsThatDoNotFit(t *testing.T) {
	for _, set := range []map[string]string{
		{"kernel": "cosine"}, {"features": "0"}, {"tau": "0"}, {"norm": "max"}, {"gate": "maybe"}, {"form": "program"},
		{"form": "code", "gate": "true"}, {"form": "code", "kernel": "arccos"}, {"form": "code-cross", "eps": "1"}, {"form": "code-masked", "norm": "none"},
	} {
		if _, err := New("rfa", Options{Width: 8, Set: set}); err == nil {
			t.Errorf("%v is taken", set)
		}
	}
	m, err := New("rfa", Options{Width: 8, Heads: 2, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Traits().Decay {
		t.Error("form=code says that it takes a decay")
	}
	sh := shape{b: 1, h: 2, hkv: 1, n: 4, m: 4, d: 8, dv: 3, causal: true, decay: 1}
	oc, _ := sh.call(72)
	c := callIn(oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("form=code takes log_g")
	}
	sh.h, sh.decay = 3, 0
	oc, _ = sh.call(72)
	c = callIn(oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("features of 2 heads take a call of 3")
	}
}

// With gates of 1 no key has entered, and with one of 0 nothing before it is left.
func TestGateOfZeroForgetsEarlierTokens(t *testing.T) {
	m, err := New("rfa", Options{Width: 8, Set: map[string]string{"gate": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	sh := shape{b: 1, h: 1, hkv: 1, n: 6, m: 6, d: 8, dv: 3, causal: true, decay: 1}
	oc, do := sh.call(70)
	copy(oc.LogG.Data, []float64{0, 0, -0.5, 0, -1000, -0.25})
	for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 2}, {attention.Step, 2}} {
		c := callIn(oc)
		c.Form, c.Chunk = f.form, f.chunk
		o := output(c)
		if err := m.Forward(o, c, nil); err != nil {
			t.Fatal(err)
		}
		row := func(i int) []float { return o.Head(0, 0).Row(i) }
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
		r := both(t, m, c, in(do))
		if r.keep.WeakCount != 2 || r.keep.WeakAt != [3]int{} {
			t.Errorf("%v: %d weak rows, the first %v", f, r.keep.WeakCount, r.keep.WeakAt)
		}
		for _, x := range [][]float{r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data, r.g.DLogG.Data, r.tau} {
			for _, y := range x {
				if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
					t.Fatalf("%v: a gradient is %v", f, y)
				}
			}
		}
	}
}

// Rows that are divided by their length give the same, however large they are.
func TestRFAOfLargeRowsIsOfTheirDirections(t *testing.T) {
	m, err := New("rfa", Options{Width: 8, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(size float64) (o, dq []float) {
		oc, do := shape{b: 1, h: 1, hkv: 1, n: 12, m: 12, d: 8, dv: 3, causal: true}.call(109)
		for i := range oc.Q.Data {
			oc.Q.Data[i], oc.K.Data[i] = oc.Q.Data[i]*size, oc.K.Data[i]*size
		}
		r := both(t, m, callIn(oc), in(do))
		for i := range r.g.DQ.Data {
			r.g.DQ.Data[i] *= float(size)
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
		s, err := zoo.RFASpec(newReader(&rfa, &Options{Width: d, Set: set}).Reader)
		if err != nil {
			t.Fatal(err)
		}
		phi := func(row []float64) []float64 {
			ar := arena.Acquire()
			defer ar.Release()
			b := attention.FeatureBlock{Scratch: arena.Of[float]{Arena: ar}, D: d, N: 1, Stride: kernel.Lanes}
			b.X, b.Y = make([]float, d*b.Stride), make([]float, s.Features.Dim(d)*b.Stride)
			for c, v := range row {
				b.X[c*b.Stride] = float(v)
			}
			s.Features.Map(&b)
			var y []float64
			for r := range s.Features.Dim(d) {
				y = append(y, float64(b.Y[r*b.Stride]))
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
