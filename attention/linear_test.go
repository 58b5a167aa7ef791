package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// plain evaluates a Spec for single sequences as a textbook would, in float64.
type plain struct {
	s    Spec[float64]
	rope bool
}

// row prepares one row.
func (p plain) row(x []float64, scale float64, pos int) []float64 {
	d := len(x)
	y := slices.Clone(x)
	var mean, ss float64
	for _, v := range x {
		mean += v / float64(d)
	}
	if p.s.Norm == NoNorm || p.s.Norm == Unit {
		mean = 0
	}
	for c := range y {
		y[c] -= mean
		ss += y[c] * y[c]
	}
	switch p.s.Norm {
	case Standard:
		ss /= float64(d)
	case NoNorm:
		ss = 1
	}
	for c := range y {
		if ss > 0 {
			y[c] /= math.Sqrt(ss)
		}
	}
	if p.rope {
		for j := range d / 2 {
			sin, cos := math.Sincos(float64(pos) * math.Pow(10000, -2*float64(j)/float64(d)))
			y[j], y[j+d/2] = y[j]*cos-y[j+d/2]*sin, y[j+d/2]*cos+y[j]*sin
		}
	}
	for c := range y {
		y[c] *= scale
	}
	if p.s.Map != nil {
		z := make([]float64, p.s.Map.Dim(d))
		p.s.Map.Map(z, y)
		y = z
	}
	return y
}

// forward sets o and returns for every query its condition, Σ f̄(|a|·|b|)/|g|
// with the absolute coefficients, where it sees a key.
func (p plain) forward(o, q, k, v [][]float64, causal bool, off, m int, mask []bool) (cond []float64) {
	scale := p.s.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(len(q[0])))
	}
	for i := range q {
		pos := i
		if causal {
			pos += off
		}
		a := p.row(q[i], scale, pos)
		g, abs, seen := 0.0, 0.0, false
		clear(o[i])
		for j := range m {
			if causal && j > pos || mask != nil && !mask[j] {
				continue
			}
			seen = true
			b := p.row(k[j], 1, j)
			var s, t, f, fbar float64
			for c := range a {
				s += a[c] * b[c]
				t += math.Abs(a[c] * b[c])
			}
			for l, c := range p.s.Coef {
				f += c * math.Pow(s, float64(l))
				fbar += math.Abs(c) * math.Pow(t, float64(l))
			}
			g += f
			abs += fbar
			for c := range o[i] {
				o[i][c] += f * v[j][c]
			}
		}
		if !seen {
			cond = append(cond, 0)
			continue
		}
		g += p.s.Eps
		for c := range o[i] {
			o[i][c] /= g
		}
		cond = append(cond, abs/math.Abs(g))
	}
	return cond
}

// rows views tokens n0 ≤ n < n1 of a head as rows.
func rows(x tensor.Heads[float64], b, h, n0, n1 int) [][]float64 {
	var r [][]float64
	for n := n0; n < n1; n++ {
		r = append(r, x.At(b, h).Row(n))
	}
	return r
}

// call evaluates every sequence and head of c; the conditions are [B,H,N].
func (p plain) call(o tensor.Heads[float64], c *Call[float64]) (cond []float64) {
	p.rope = c.Rope != nil
	cond = make([]float64, c.Q.B*c.Q.H*c.Q.N)
	for _, s := range c.sequences() {
		var mask []bool
		if c.KeyMask != nil {
			mask = c.KeyMask[s.b*c.K.N+s.k0:]
		}
		for h := range c.Q.H {
			kh := h / (c.Q.H / c.K.H)
			if s.n == 0 {
				continue
			}
			copy(cond[(s.b*c.Q.H+h)*c.Q.N+s.q0:], p.forward(
				rows(o, s.b, h, s.q0, s.q0+s.n), rows(c.Q, s.b, h, s.q0, s.q0+s.n),
				rows(c.K, s.b, kh, s.k0, s.k0+s.m), rows(c.V, s.b, kh, s.k0, s.k0+s.m),
				c.Causal, s.off, s.m, mask))
		}
	}
	return cond
}

// squares is a feature map: x and x², so that rows get wider.
type squares[T tensor.Float] struct{}

func (squares[T]) Dim(d int) int { return 2 * d }
func (squares[T]) Map(dst, x []T) {
	for i, v := range x {
		dst[i], dst[len(x)+i] = v/2, v*v/4
	}
}
func (squares[T]) Grad(dx, dy, x []T) {
	for i, v := range x {
		dx[i] = dy[i]/2 + dy[len(x)+i]*v/2
	}
}

var linearSpecs = []struct {
	name string
	Spec[float64]
}{
	{"p=1 bounded", Spec[float64]{Norm: Bounded, Scale: 0.9, Coef: []float64{1, 1}}},
	{"p=2 paper", Spec[float64]{Norm: Standard, Scale: 1, Coef: []float64{1, 1, 0.5}}},
	{"p=2 scaled", Spec[float64]{Norm: Standard, Coef: []float64{1, 1, 0.5}}},
	{"p=2 unit", Spec[float64]{Norm: Unit, Scale: 1.5, Coef: []float64{1, 1, 0.5}}},
	{"p=3", Spec[float64]{Norm: Bounded, Scale: 1, Coef: []float64{1, 1, 0.5, 1.0 / 6}}},
	{"p=4", Spec[float64]{Norm: Standard, Coef: []float64{1, 1, 0.5, 1.0 / 6, 1.0 / 24}}},
	{"gaps", Spec[float64]{Norm: Unit, Scale: 1, Coef: []float64{0.3, 0, 1, 0, 0.5}}},
	{"square", Spec[float64]{Norm: NoNorm, Coef: []float64{0, 0, 1}, Eps: 0.25}},
	{"fourth power", Spec[float64]{Norm: NoNorm, Coef: []float64{0, 0, 0, 0, 2}, Eps: 0.1}},
	{"map", Spec[float64]{Norm: Unit, Map: squares[float64]{}, Coef: []float64{1, 0.5}}},
	{"map p=2", Spec[float64]{Norm: Unit, Map: squares[float64]{}, Coef: []float64{1, 0.5, 0.25}}},
}

// as32 is s for float32.
func as32(s Spec[float64]) Spec[float32] {
	t := Spec[float32]{Name: s.Name, Norm: s.Norm, Scale: s.Scale, Coef: s.Coef, Eps: s.Eps}
	if s.Map != nil {
		t.Map = squares[float32]{}
	}
	return t
}

func mustNew[T tensor.Float](t *testing.T, s Spec[T]) Mechanism[T] {
	t.Helper()
	m, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNewRefuses(t *testing.T) {
	for want, s := range map[string]Spec[float64]{
		"x: needs either the exponential or coefficients": {Name: "x"},
		"y: needs either the exponential or coefficients": {Name: "y", Exp: true, Coef: []float64{1, 1}},
		"constant: a constant is no kernel":               {Name: "constant", Coef: []float64{1}},
		"short: the highest of 3 coefficients is 0":       {Name: "short", Coef: []float64{1, 1, 0}},
	} {
		if _, err := New(s); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// randomHeads holds float32-exact numbers.
func randomHeads(r *rand.Rand, b, h, n, d int) tensor.Heads[float64] {
	x := tensor.NewHeads[float64](b, h, n, d)
	for i := range x.Data {
		x.Data[i] = float64(float32(r.NormFloat64()))
	}
	return x
}

// poisoned is an output of NaNs.
func poisoned[T tensor.Float](b, h, n, d int) tensor.Heads[T] {
	x := tensor.NewHeads[T](b, h, n, d)
	for i := range x.Data {
		x.Data[i] = T(math.NaN())
	}
	return x
}

func heads32(x tensor.Heads[float64]) tensor.Heads[float32] {
	y := tensor.NewHeads[float32](x.B, x.H, x.N, x.D)
	for i, v := range x.Data {
		y.Data[i] = float32(v)
	}
	return y
}

func call32(c *Call[float64]) *Call[float32] {
	d := &Call[float32]{Q: heads32(c.Q), K: heads32(c.K), V: heads32(c.V), Causal: c.Causal, KeyLens: c.KeyLens,
		KeyMask: c.KeyMask, CuQ: c.CuQ, CuK: c.CuK, Form: c.Form, Chunk: c.Chunk}
	if c.Rope != nil {
		d.Rope = NewRope[float32](c.Q.D, 10000, 0, c.Rope.Rows())
	}
	return d
}

// linearCalls are shapes with odd sizes.
func linearCalls() map[string]*Call[float64] {
	r := rand.New(rand.NewPCG(1, 2))
	call := func(b, h, hkv, n, m, d, dv int, causal bool, chunk int) *Call[float64] {
		return &Call[float64]{Q: randomHeads(r, b, h, n, d), K: randomHeads(r, b, hkv, m, d), V: randomHeads(r, b, hkv, m, dv),
			Causal: causal, Form: Linear, Chunk: chunk}
	}
	mask := func(n int) []bool {
		k := make([]bool, n)
		for i := range k {
			k[i] = r.IntN(4) > 0
		}
		k[0], k[1] = false, false
		return k
	}
	calls := map[string]*Call[float64]{
		"one token":            call(1, 1, 1, 1, 1, 3, 2, false, 0),
		"all":                  call(1, 2, 2, 19, 19, 5, 3, false, 7),
		"all, wide values":     call(1, 1, 1, 21, 33, 3, 19, false, 64),
		"all, chunk 1":         call(1, 1, 1, 5, 6, 4, 4, false, 1),
		"no queries":           call(1, 1, 1, 0, 6, 4, 4, true, 4),
		"no keys":              call(1, 1, 1, 5, 0, 4, 4, false, 4),
		"causal":               call(2, 1, 1, 37, 37, 5, 4, true, 7),
		"causal, chunk 1":      call(1, 1, 1, 9, 9, 4, 5, true, 1),
		"causal, one chunk":    call(1, 1, 1, 23, 23, 3, 5, true, 64),
		"causal, default":      call(1, 1, 1, 300, 300, 3, 2, true, 0),
		"causal, wide chunks":  call(1, 1, 1, 71, 71, 3, 2, true, 33),
		"causal, more keys":    call(1, 1, 1, 11, 30, 4, 3, true, 7),
		"causal, fewer keys":   call(1, 1, 1, 30, 11, 4, 3, true, 7),
		"causal, one channel":  call(1, 1, 1, 17, 17, 1, 1, true, 7),
		"groups":               call(2, 6, 2, 13, 15, 3, 4, false, 7),
		"causal groups":        call(1, 6, 2, 25, 25, 3, 4, true, 7),
		"lengths":              call(3, 2, 1, 10, 20, 4, 3, false, 7),
		"causal lengths":       call(3, 2, 1, 20, 20, 4, 3, true, 7),
		"mask":                 call(2, 2, 1, 12, 21, 4, 3, false, 7),
		"causal mask":          call(2, 2, 1, 24, 21, 4, 3, true, 7),
		"packed":               call(1, 2, 1, 30, 35, 4, 3, false, 7),
		"causal packed":        call(1, 2, 1, 30, 35, 4, 3, true, 7),
		"rotated":              call(1, 2, 1, 12, 15, 5, 3, false, 7),
		"causal rotated":       call(1, 2, 1, 12, 25, 6, 3, true, 7),
		"causal lengths, mask": call(2, 1, 1, 19, 23, 3, 3, true, 4),
	}
	calls["lengths"].KeyLens = []int64{20, 0, 9}
	calls["causal lengths"].KeyLens = []int64{20, 0, 9}
	calls["causal lengths, mask"].KeyLens = []int64{21, 5}
	for _, name := range []string{"mask", "causal mask", "causal lengths, mask"} {
		calls[name].KeyMask = mask(calls[name].K.B * calls[name].K.N)
	}
	for _, name := range []string{"packed", "causal packed"} {
		calls[name].CuQ = []int64{0, 9, 9, 28, 30}
		calls[name].CuK = []int64{0, 9, 12, 20, 35}
	}
	for _, name := range []string{"rotated", "causal rotated"} {
		calls[name].Rope = NewRope[float64](calls[name].Q.D, 10000, 0, 40)
	}
	return calls
}

func maxAbs[T tensor.Float](x []T) float64 {
	var m float64
	for _, v := range x {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

// TestLinearForward compares float64 results with the textbook, and float32
// results too: within (8+√F+√C)·2⁻²⁴·condition·(max|v|+max|o|).
func TestLinearForward(t *testing.T) {
	for _, s := range linearSpecs {
		for name, c := range linearCalls() {
			want := tensor.NewHeads[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
			cond := plain{s: s.Spec}.call(want, c)
			t.Run(s.name+"/"+name, func(t *testing.T) {
				o := poisoned[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
				var keep Saved[float64]
				if err := mustNew(t, s.Spec).Forward(o, c, &keep); err != nil {
					t.Fatal(err)
				}
				o32 := poisoned[float32](c.Q.B, c.Q.H, c.Q.N, c.V.D)
				if err := mustNew(t, as32(s.Spec)).Forward(o32, call32(c), nil); err != nil {
					t.Fatal(err)
				}
				f := s.features(s.width(c.Q.D))
				factor := (8 + math.Sqrt(float64(f)) + math.Sqrt(256)) * (maxAbs(c.V.Data) + maxAbs(want.Data))
				for i, w := range want.Data {
					limit := factor * cond[i/c.V.D]
					if d := math.Abs(o.Data[i] - w); !(d <= limit*0x1p-53) {
						t.Fatalf("float64: element %d is %g, want %g, limit %g", i, o.Data[i], w, limit*0x1p-53)
					}
					if d := math.Abs(float64(o32.Data[i]) - w); !(d <= limit*0x1p-24) {
						t.Fatalf("float32: element %d is %g, want %g, limit %g", i, o32.Data[i], w, limit*0x1p-24)
					}
				}
				for i, k := range cond {
					if (k == 0) != (keep.Den[i] == 0) {
						t.Fatalf("row %d has condition %g and denominator %g", i, k, keep.Den[i])
					}
				}
			})
		}
	}
}

// gradients runs Forward and Backward into poisoned memory.
func gradients[T tensor.Float](t *testing.T, m Mechanism[T], c *Call[T], dout tensor.Heads[T]) *Grads[T] {
	t.Helper()
	o := poisoned[T](c.Q.B, c.Q.H, c.Q.N, c.V.D)
	g := &Grads[T]{
		DQ: poisoned[T](c.Q.B, c.Q.H, c.Q.N, c.Q.D),
		DK: poisoned[T](c.K.B, c.K.H, c.K.N, c.K.D),
		DV: poisoned[T](c.V.B, c.V.H, c.V.N, c.V.D),
	}
	var keep Saved[T]
	if err := m.Forward(o, c, &keep); err != nil {
		t.Fatal(err)
	}
	if err := m.Backward(g, dout, o, c, &keep); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestLinearBackward compares gradients with central differences of the
// textbook, whose own error is of the order of h² and 2⁻⁵³/h.
func TestLinearBackward(t *testing.T) {
	const h = 1e-5
	r := rand.New(rand.NewPCG(3, 4))
	for _, s := range linearSpecs {
		for name, c := range linearCalls() {
			if c.Q.N > 100 {
				continue
			}
			t.Run(s.name+"/"+name, func(t *testing.T) {
				dout := randomHeads(r, c.Q.B, c.Q.H, c.Q.N, c.V.D)
				g := gradients(t, mustNew(t, s.Spec), c, dout)
				o := tensor.NewHeads[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
				loss := func() (l float64) {
					plain{s: s.Spec}.call(o, c)
					for i, d := range dout.Data {
						l += d * o.Data[i]
					}
					return l
				}
				for _, x := range []struct {
					name    string
					x, grad tensor.Heads[float64]
				}{{"dq", c.Q, g.DQ}, {"dk", c.K, g.DK}, {"dv", c.V, g.DV}} {
					for _, d := range x.grad.Data {
						if d != d {
							t.Fatalf("%s is not all written", x.name)
						}
					}
					for range min(12, len(x.x.Data)) {
						i := r.IntN(len(x.x.Data))
						was := x.x.Data[i]
						x.x.Data[i] = was + h
						up := loss()
						x.x.Data[i] = was - h
						down := loss()
						x.x.Data[i] = was
						want := (up - down) / (2 * h)
						if d := math.Abs(x.grad.Data[i] - want); !(d <= 1e-6*(1+maxAbs(x.grad.Data))) {
							t.Fatalf("%s: element %d is %g, differences give %g", x.name, i, x.grad.Data[i], want)
						}
					}
				}
			})
		}
	}
}

// TestLinearBackward32 compares float32 gradients with those of float64.
func TestLinearBackward32(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, s := range linearSpecs {
		for name, c := range linearCalls() {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				dout := randomHeads(r, c.Q.B, c.Q.H, c.Q.N, c.V.D)
				want := gradients(t, mustNew(t, s.Spec), c, dout)
				got := gradients(t, mustNew(t, as32(s.Spec)), call32(c), heads32(dout))
				o := tensor.NewHeads[float64](c.Q.B, c.Q.H, c.Q.N, c.V.D)
				var cond float64
				for _, k := range (plain{s: s.Spec}).call(o, c) {
					cond = max(cond, k)
				}
				f := s.features(s.width(c.Q.D))
				factor := (8 + math.Sqrt(float64(f)) + math.Sqrt(256)) * 0x1p-24 * cond
				for _, x := range []struct {
					name string
					want []float64
					got  []float32
				}{{"dq", want.DQ.Data, got.DQ.Data}, {"dk", want.DK.Data, got.DK.Data}, {"dv", want.DV.Data, got.DV.Data}} {
					limit := factor * max(maxAbs(x.want), maxAbs(dout.Data)*maxAbs(c.V.Data))
					for i, w := range x.want {
						if d := math.Abs(float64(x.got[i]) - w); !(d <= limit) {
							t.Fatalf("%s: element %d is %g, want %g, limit %g", x.name, i, x.got[i], w, limit)
						}
					}
				}
			})
		}
	}
}

// TestLinearThreads: any number of threads gives the same bits.
func TestLinearThreads(t *testing.T) {
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(9, 10))
	for _, causal := range []bool{false, true} {
		c := call32(&Call[float64]{Q: randomHeads(r, 3, 4, 200, 9), K: randomHeads(r, 3, 2, 200, 9), V: randomHeads(r, 3, 2, 200, 11),
			Causal: causal, Form: Linear, Chunk: 64})
		dout := heads32(randomHeads(r, 3, 4, 200, 11))
		m := mustNew(t, as32(linearSpecs[1].Spec))
		var want tensor.Heads[float32]
		var grads *Grads[float32]
		for _, threads := range []int{1, 2, 5} {
			par.SetThreads(threads)
			o := poisoned[float32](3, 4, 200, 11)
			if err := m.Forward(o, c, nil); err != nil {
				t.Fatal(err)
			}
			g := gradients(t, m, c, dout)
			if threads == 1 {
				want, grads = o, g
				continue
			}
			if !slices.Equal(o.Data, want.Data) {
				t.Errorf("causal %v: %d threads give other outputs", causal, threads)
			}
			if !slices.Equal(g.DQ.Data, grads.DQ.Data) || !slices.Equal(g.DK.Data, grads.DK.Data) || !slices.Equal(g.DV.Data, grads.DV.Data) {
				t.Errorf("causal %v: %d threads give other gradients", causal, threads)
			}
		}
	}
}

// TestLinearIgnoresHiddenKeys: what masked keys, keys beyond the length and
// keys of the future hold changes no bit of an output.
func TestLinearIgnoresHiddenKeys(t *testing.T) {
	for _, s := range linearSpecs {
		for _, name := range []string{"mask", "causal mask", "lengths", "causal lengths, mask"} {
			c := call32(linearCalls()[name])
			m := mustNew(t, as32(s.Spec))
			dout := heads32(randomHeads(rand.New(rand.NewPCG(11, 12)), c.Q.B, c.Q.H, c.Q.N, c.V.D))
			run := func() (tensor.Heads[float32], *Grads[float32]) {
				o := poisoned[float32](c.Q.B, c.Q.H, c.Q.N, c.V.D)
				if err := m.Forward(o, c, nil); err != nil {
					t.Fatal(err)
				}
				return o, gradients(t, m, c, dout)
			}
			want, grads := run()
			for b := range c.K.B {
				for j := range c.K.N {
					hidden := c.KeyMask != nil && !c.KeyMask[b*c.K.N+j] || c.KeyLens != nil && j >= int(c.KeyLens[b])
					for h := range c.K.H {
						if hidden {
							c.K.At(b, h).Row(j)[0] = float32(math.NaN())
							c.V.At(b, h).Row(j)[0] = float32(math.Inf(1))
						}
					}
				}
			}
			o, g := run()
			if !slices.Equal(o.Data, want.Data) {
				t.Errorf("%s, %s: hidden keys change outputs", s.name, name)
			}
			if !slices.Equal(g.DQ.Data, grads.DQ.Data) || !slices.Equal(g.DK.Data, grads.DK.Data) || !slices.Equal(g.DV.Data, grads.DV.Data) {
				t.Errorf("%s, %s: hidden keys change gradients", s.name, name)
			}
		}
	}
}

// TestLinearIsCausal: tokens from one on change no bit of the outputs before.
func TestLinearIsCausal(t *testing.T) {
	const n = 40
	for _, s := range linearSpecs {
		c := stateCall(n, 5, 3, 16)
		m := mustNew(t, as32(s.Spec))
		want := poisoned[float32](2, 6, n, 3)
		if err := m.Forward(want, c, nil); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{1, 15, 16, 23, 39} {
			d := *c
			d.K, d.V = heads32(heads64(c.K)), heads32(heads64(c.V))
			for b := range 2 {
				for h := range 2 {
					for j := from; j < n; j++ {
						d.K.At(b, h).Row(j)[1] = float32(math.NaN())
						d.V.At(b, h).Row(j)[1] = float32(math.Inf(1))
					}
				}
			}
			o := poisoned[float32](2, 6, n, 3)
			if err := m.Forward(o, &d, nil); err != nil {
				t.Fatal(err)
			}
			for b := range 2 {
				for h := range 6 {
					for i := range from {
						if !slices.Equal(o.At(b, h).Row(i), want.At(b, h).Row(i)) {
							t.Fatalf("%s: token %d changes output %d", s.name, from, i)
						}
					}
				}
			}
		}
	}
}

// TestLinearMemory: scratch is lent, and what a call allocates itself does not
// grow with the features, and hardly with the tokens.
func TestLinearMemory(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	m := mustNew(t, as32(linearSpecs[1].Spec))
	allocations := func(n int) float64 {
		c := stateCall(n, 6, 5, 16)
		out := poisoned[float32](2, 6, n, 5)
		return testing.AllocsPerRun(5, func() {
			if err := m.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	if short, long := allocations(40), allocations(400); long > short {
		t.Errorf("%g allocations for 40 tokens, %g for 400", short, long)
	}
}

func heads64(x tensor.Heads[float32]) tensor.Heads[float64] {
	y := tensor.NewHeads[float64](x.B, x.H, x.N, x.D)
	for i, v := range x.Data {
		y.Data[i] = float64(v)
	}
	return y
}
