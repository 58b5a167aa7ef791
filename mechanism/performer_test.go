package mechanism

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The reference program takes the largest exponent of the whole sequence from
// keys before a floor of 1e-4 is added, so a key scaled by 4 moves outputs before
// it, by 1.92 where that was measured. Here it moves no bit of them.
func TestPerformerDoesNotLeak(t *testing.T) {
	sh := shape{b: 1, h: 2, hkv: 2, n: 24, m: 24, d: 8, dv: 6, causal: true}
	oc, _ := sh.call(60)
	for _, kernel := range []string{"softmax", "hyperbolic", "trigonometric", "relu"} {
		m, err := New("performer", Options{Width: sh.d, Set: map[string]string{"kernel": kernel}})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 5}, {attention.Step, 5}} {
			c := callIn(oc)
			c.Form, c.Chunk = f.form, f.chunk
			before, after := output(c), output(c)
			if err := m.Forward(before, c, nil); err != nil {
				t.Fatal(err)
			}
			for h := range sh.h {
				for i, x := range c.K.Head(0, h).Row(sh.n - 1) {
					c.K.Head(0, h).Row(sh.n - 1)[i] = 4 * x
				}
			}
			if err := m.Forward(after, c, nil); err != nil {
				t.Fatal(err)
			}
			if !sameHeads(before.Tokens(0, sh.n-1), after.Tokens(0, sh.n-1)) {
				t.Errorf("%s, %v: the last key moves outputs before it", kernel, f)
			}
		}
	}
}

// The exponent of a key along a row of the projection is |w|²/2, its maximum, which exceeds
// the range of float32 for widths above about 100. Results for such keys agree with
// the textbook, beside usual keys; for the widest rows, whose exponents are clamped, they are
// finite.
func TestPerformerMeetsKeysAlongItsRows(t *testing.T) {
	t.Parallel()
	for _, d := range []int{64, 128, 256} {
		if d == 128 && !suite.IsLong() {
			continue
		}
		for _, kernel := range []string{"softmax", "hyperbolic"} {
			m, err := New("performer", Options{Width: d, Set: map[string]string{"kernel": kernel, "features": "300"}})
			if err != nil {
				t.Fatal(err)
			}
			p := numbers{}
			readNumbers(p, m.Constants())
			w := p["projection"]
			book := oracle.Mechanism{Scale: 1, Coef: []float64{0, 1}, Features: &oracle.Favor{Kernel: kernel, W: rowsOf(w, d), Root: fourthRoot(d)}}
			sh := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: d, dv: 3, causal: true}
			oc, do := sh.call(uint64(64 + d))
			for j := 8; j < sh.m; j += 2 {
				for c := range d { // of length √2, 1 and 1/√2 times that
					oc.K.Head(0, 0).Row(j)[c] = float64(float32(w[j*d+c] * math.Pow(float64(d), 0.25) * math.Pow(2, float64(j%3-1)/2)))
				}
			}
			a, want, grads := callIn(oc), new(oracle.Result), new(oracle.Grads)
			if d <= 128 {
				want, grads = book.Forward(oc), book.Backward(oc, do)
			}
			for _, f := range []form{{attention.Direct, 0}, {attention.Linear, 8}} {
				a.Form, a.Chunk = f.form, f.chunk
				got := both(t, m, a, in(do))
				// Exponents have rounding errors of terms up to |w|², relative errors of
				// a feature; a gradient has the errors of both sides.
				limit := 8 * 0x1p-24 * 2 * float64(d)
				for _, x := range []struct {
					name string
					got  []float
					want []float64
				}{{"o", got.o.Data, want.O.Data}, {"dq", got.g.DQ.Data, grads.DQ.Data}, {"dk", got.g.DK.Data, grads.DK.Data}, {"dv", got.g.DV.Data, grads.DV.Data}} {
					if d > 128 {
						for _, y := range x.got {
							if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
								t.Fatalf("D = %d, %s, %v: a number of %s is %v", d, kernel, f, x.name, y)
							}
						}
						continue
					}
					if e := check.ErrorRatio(x.got, x.want, limit*(1+check.MaxAbs(x.want))); e > 1 {
						t.Errorf("D = %d, %s, %v: %s is off by %.3g limits", d, kernel, f, x.name, e)
					}
				}
			}
		}
	}
}

// TestOrthogonalFeaturesMatchGoldenFile compares with HazyResearch/fly, which makes the diagonal
// of R positive; performer-pytorch does not.
func TestOrthogonalFeaturesMatchGoldenFile(t *testing.T) {
	path := filepath.Join("..", "..", "shared", "fixtures", "zoo", "performer_orthogonal_features.npz")
	if _, err := os.Stat(path); err != nil {
		t.Skip("no folder of golden files beside this checkout")
	}
	f, err := array.OpenNPZ(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(name string) []float64 {
		a, err := f.ReadArray(name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := a.Float64()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	g, x, want := read("G"), read("X"), read("out")
	const d = 8
	for r := range len(x) / d {
		q := zoo.OrthogonalFactor(g[r/d*d*d:][:d*d], d)
		for c := range d {
			if got := scratch.Norm2(x[r*d:][:d]) * q[r%d*d+c]; math.Abs(got-want[r*d+c]) > 1e-12 {
				t.Fatalf("row %d, channel %d is %v, want %v", r, c, got, want[r*d+c])
			}
		}
	}
}

// The mean of the features' products is exp(q·k/√D).
func TestPerformerApproachesSoftmax(t *testing.T) {
	sh := shape{b: 1, h: 1, hkv: 1, n: 6, m: 12, d: 4, dv: 2}
	oc, _ := sh.call(61)
	c := callIn(oc)
	for i := range c.Q.Data {
		c.Q.Data[i] /= 2 // products vary as the exponential of the rows' lengths
	}
	soft, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, got := tensor.NewMat(sh.n, sh.m), tensor.NewMat(sh.n, sh.m)
	if err := soft.Weights(want, c, 0, 0, 0, sh.n); err != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{
		{"features": "16384"}, {"features": "8192", "kernel": "hyperbolic"}, {"features": "16384", "projection": "iid", "seed": "1"},
		{"features": "16384", "kernel": "trigonometric"},
	} {
		m, err := New("performer", Options{Width: sh.d, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Weights(got, c, 0, 0, 0, sh.n); err != nil {
			t.Fatal(err)
		}
		for i, x := range got.Data {
			if math.Abs(float64(x-want.Data[i])) > 0.04 {
				t.Errorf("%v: weight %d is %.3f, softmax has %.3f", set, i, x, want.Data[i])
			}
		}
	}
}

func TestProjectionRowsAreOrthogonal(t *testing.T) {
	const d, rows = 6, 15
	for _, even := range []bool{false, true} {
		w := make([]float, rows*d)
		zoo.DrawProjection(w, rows, d, true, even, rng.New(3))
		normal := make([]float, rows*d)
		zoo.DrawProjection(normal, rows, d, false, false, rng.New(3))
		for i := range rows {
			length := math.Sqrt(d)
			if !even {
				length = scratch.Norm2(normal[i*d:][:d])
			}
			if got := scratch.Norm2(w[i*d:][:d]); math.Abs(got-length) > 1e-6*length {
				t.Errorf("row %d is %v long, want %v", i, got, length)
			}
			for j := i/d*d + 0; j < i; j++ {
				var along float64
				for c := range d {
					along += float64(w[i*d+c] * w[j*d+c])
				}
				if math.Abs(along) > 1e-5 {
					t.Errorf("rows %d and %d of a block have the product %v", i, j, along)
				}
			}
		}
	}
}

// Rows of any width, and of some times the usual length, give numbers: features
// never overflow, and wide rows do not vanish.
func TestPerformerStaysWithinRange(t *testing.T) {
	t.Parallel()
	for _, d := range []int{64, 128, 256} {
		m, err := New("performer", Options{Width: d})
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []float{1e-3, 1, 2} {
			sh := shape{b: 1, h: 1, hkv: 1, n: 5, m: 5, d: d, dv: 2, causal: true}
			oc, do := sh.call(uint64(62 + d))
			c := callIn(oc)
			for i := range c.K.Data {
				c.K.Data[i] *= size
				c.Q.Data[i] *= size
			}
			r := both(t, m, c, in(do))
			for _, x := range [][]float{r.o.Data, r.keep.Den, r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data} {
				for _, y := range x {
					if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
						t.Fatalf("D = %d, rows times %v: a number is %v", d, size, y)
					}
				}
			}
			if r.keep.WeakCount > 0 {
				t.Errorf("D = %d, rows times %v: %d queries weigh nothing", d, size, r.keep.WeakCount)
			}
		}
	}
}

// The factor exp(|k|²/2) of trigonometric features is bounded: keys and queries of many times the usual
// length give numbers.
func TestTrigonometricFeaturesStayWithinRange(t *testing.T) {
	for _, set := range []map[string]string{{"kernel": "trigonometric"}, {"kernel": "trigonometric", "eps": "1e-3"}} {
		for _, size := range []float{1e-3, 1, 100} {
			sh := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: 64, dv: 2, causal: true}
			oc, do := sh.call(67)
			c := callIn(oc)
			for i := range c.K.Data {
				c.K.Data[i] *= size
				c.Q.Data[i] *= size
			}
			m, err := New("performer", Options{Width: sh.d, Set: set})
			if err != nil {
				t.Fatal(err)
			}
			r := both(t, m, c, in(do))
			for _, x := range [][]float{r.o.Data, r.keep.Den, r.g.DQ.Data, r.g.DK.Data, r.g.DV.Data} {
				for _, y := range x {
					if y-y != 0 {
						t.Fatalf("%v, rows times %v: a number is %v", set, size, y)
					}
				}
			}
		}
	}
}
