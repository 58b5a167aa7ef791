//go:build float64

package nn

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// gradientError is what central differences of fourth order, with steps of
// 1e-3, leave of a gradient's largest element.
const gradientError = 1e-9

// layer is one layer as a test sees it: y [rows,out] from x [rows,in].
type layer struct {
	in, out int
	weights []*param.Param
	forward func(y, x tensor.Mat)
	// backward sets dx; it follows forward with the same x.
	backward func(dx, dy, x tensor.Mat)
}

// layers of odd sizes. All of them are rows by themselves but attention.
func layers(s *source) map[string]layer {
	linear := func(out, in int, bias bool) *Linear {
		l := &Linear{W: weight(s, out, in)}
		if bias {
			l.B = weight(s, out)
		}
		return l
	}
	all := map[string]layer{}
	for name, bias := range map[string]bool{"linear": false, "linear with bias": true} {
		l := linear(5, 7, bias)
		x := layer{in: 7, out: 5, weights: []*param.Param{l.W}}
		x.forward = func(y, x tensor.Mat) { l.Forward(y, x, false) }
		x.backward = func(dx, dy, x tensor.Mat) { l.Backward(dx, dy, x, false) }
		if bias {
			x.weights = append(x.weights, l.B)
		}
		all[name] = x
	}
	for name, bias := range map[string]bool{"norm": false, "norm with bias": true} {
		n := &layerNorm{Gain: weight(s, 7), Eps: 1e-5}
		x := layer{in: 7, out: 7, weights: []*param.Param{n.Gain}}
		var stats []float64
		x.forward = func(y, x tensor.Mat) {
			stats = make([]float64, 2*x.Rows)
			n.Forward(y, x, stats)
		}
		x.backward = func(dx, dy, x tensor.Mat) {
			for i := range dx.Rows {
				clear(dx.Row(i))
			}
			n.Backward(dx, dy, x, stats)
		}
		if bias {
			n.Bias = weight(s, 7)
			x.weights = append(x.weights, n.Bias)
		}
		all[name] = x
	}
	rms := &RMSNorm{Gain: weight(s, 7), Eps: 1e-5}
	var stats []float64
	all["rms norm"] = layer{
		in: 7, out: 7, weights: []*param.Param{rms.Gain},
		forward: func(y, x tensor.Mat) {
			stats = make([]float64, 2*x.Rows)
			rms.Forward(y, x, stats)
		},
		backward: func(dx, dy, x tensor.Mat) {
			for i := range dx.Rows {
				clear(dx.Row(i))
			}
			rms.Backward(dx, dy, x, stats)
		},
	}
	for name, act := range map[string]Activation{"swiglu": SiLU, "geglu": GELU, "gated relu": ReLU} {
		m := &gatedMLP{GateProj: *linear(9, 5, true), UpProj: *linear(9, 5, true), DownProj: *linear(5, 9, true), Act: act}
		var trace gatedMLPTrace
		all[name] = layer{
			in: 5, out: 5, weights: []*param.Param{m.GateProj.W, m.GateProj.B, m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B},
			forward: func(y, x tensor.Mat) {
				for i := range y.Rows {
					clear(y.Row(i))
				}
				m.Forward(y, y, x, Scope{}, &trace, true)
			},
			backward: func(dx, dy, x tensor.Mat) { m.Backward(dx, dy, x, &trace, nil) },
		}
	}
	m := &mlp{UpProj: *linear(9, 5, true), DownProj: *linear(5, 9, true)}
	var trace mlpTrace
	all["mlp"] = layer{
		in: 5, out: 5, weights: []*param.Param{m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B},
		forward: func(y, x tensor.Mat) {
			for i := range y.Rows {
				clear(y.Row(i))
			}
			m.Forward(y, y, x, Scope{}, &trace, true)
		},
		backward: func(dx, dy, x tensor.Mat) { m.Backward(dx, dy, x, &trace, nil) },
	}
	return all
}

// sequenceLayers work along two sequences of an even number of rows, shorter
// and longer than the convolution.
func sequenceLayers(s *source) map[string]layer {
	all := map[string]layer{}
	for name, taps := range map[string]int{"conv": 2, "long conv": 5} {
		c := &Conv{W: weight(s, taps, 6)}
		all[name] = layer{
			in: 6, out: 6, weights: []*param.Param{c.W},
			forward:  func(y, x tensor.Mat) { c.Forward(y, x, 2, nil) },
			backward: func(dx, dy, x tensor.Mat) { c.Backward(dx, dy, x, 2, ConvEnds{}) },
		}
	}
	return all
}

// sumOf returns Σ y∘dy.
func sumOf(y, dy tensor.Mat) (s float64) {
	for i := range y.Rows {
		for j, v := range y.Row(i) {
			s += v * dy.Row(i)[j]
		}
	}
	return s
}

func holds(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if r := check.ErrorRatio(got, want, gradientError*max(1, check.MaxAbs(want))); !(r <= 1) {
		t.Errorf("%s: gradient errs by %.3g of its largest", what, r*gradientError)
	}
}

func TestGradientsOfLayers(t *testing.T) {
	all := layers(&source{key: rng.New(1)})
	maps.Copy(all, sequenceLayers(&source{key: rng.New(6)}))
	for name, l := range all {
		s := &source{key: rng.New(2)}
		const rows = 4
		x, y, dy := matrix(s, rows, l.in), matrix(s, rows, l.out), matrix(s, rows, l.out)
		dx := matrix(s, rows, l.in)
		f := func() float64 {
			l.forward(y, x)
			return sumOf(y, dy)
		}
		f()
		l.backward(dx, dy, x)
		for i := range rows {
			holds(t, name+" dx", dx.Row(i), check.NumericGradient(f, x.Row(i)))
		}
		for i, p := range l.weights {
			want := check.NumericGradient(f, p.Data)
			for j := range want {
				want[j]++ // what the gradient held before
			}
			holds(t, name+" weight "+string('0'+rune(i)), p.Grad, want)
		}
	}
}

// What lies between the rows of a view is not touched.
func TestViewsKeepTheirNeighbours(t *testing.T) {
	for name, l := range layers(&source{key: rng.New(1)}) {
		s := &source{key: rng.New(4)}
		x, y, dy := matrix(s, 5, l.in), matrix(s, 5, l.out), matrix(s, 5, l.out)
		dx := matrix(s, 5, l.in)
		gaps := func(m tensor.Mat) (g []float64) {
			for i := range m.Rows - 1 {
				g = append(g, m.Data[i*m.Stride+m.Cols:(i+1)*m.Stride]...)
			}
			return g
		}
		gy, gdx := gaps(y), gaps(dx)
		l.forward(y, x)
		l.backward(dx, dy, x)
		if !slices.Equal(gy, gaps(y)) || !slices.Equal(gdx, gaps(dx)) {
			t.Errorf("%s writes between the rows of a view", name)
		}
	}
}

func TestEmbedding(t *testing.T) {
	s := &source{key: rng.New(7)}
	e := Embedding{W: weight(s, 5, 3)}
	tokens := []int32{4, 0, 4, 2}
	y, dy := matrix(s, 4, 3), matrix(s, 4, 3)
	f := func() float64 {
		e.Forward(y, tokens)
		return sumOf(y, dy)
	}
	want := check.NumericGradient(f, e.W.Data)
	for i := range want {
		want[i]++
	}
	e.Backward(dy, tokens)
	holds(t, "embedding", e.W.Grad, want)
	defer func() {
		if recover() == nil {
			t.Error("a token outside the vocabulary is accepted")
		}
	}()
	e.Forward(y, []int32{4, 0, 5, 2})
}

func TestLearnedPositions(t *testing.T) {
	s := &source{key: rng.New(8)}
	p := &Learned{W: weight(s, 4, 3)}
	x, dy := matrix(s, 6, 3), matrix(s, 6, 3)
	start := flat(x)
	f := func() float64 {
		for i := range x.Rows {
			copy(x.Row(i), start[3*i:])
		}
		if err := p.Forward(x, 2, 0); err != nil {
			t.Fatal(err)
		}
		return sumOf(x, dy)
	}
	want := check.NumericGradient(f, p.W.Data)
	for i := range want {
		want[i]++
	}
	p.Backward(dy, 2, 0)
	holds(t, "learned positions", p.W.Grad, want)

	if err := p.Forward(x.Slice(0, 1), 1, 3); err != nil {
		t.Error(err)
	}
	if err := p.Forward(x.Slice(0, 1), 1, 4); err == nil || err.Error() != "positions: 5 are needed, the learned table has 4" {
		t.Errorf("beyond the table: %v", err)
	}
	if err := p.Forward(x.Slice(0, 1), 1, math.MaxInt64); err == nil {
		t.Error("positions whose end is beyond an int64 are in a table of 4")
	}
}

func TestSinusoidalPositions(t *testing.T) {
	const width, amplitude = 5, 0.5
	p := NewSinusoidal(width, amplitude, 4)
	// Within the table, over its end, and far beyond it.
	for _, start := range []int64{0, 2, 1 << 40} {
		x := tensor.NewMat(6, width)
		if err := p.Forward(x, 2, start); err != nil {
			t.Fatal(err)
		}
		for i := range x.Rows {
			at := float64(start + int64(i%3))
			for j, got := range x.Row(i) {
				angle := at * math.Pow(10000, -2*float64(j/2)/width)
				want := amplitude * math.Sin(angle)
				if j%2 == 1 {
					want = amplitude * math.Cos(angle)
				}
				if !(math.Abs(got-want) <= 1e-15) {
					t.Errorf("position %v, channel %d is %v, want %v", at, j, got, want)
				}
			}
		}
	}
}

func TestCrossEntropy(t *testing.T) {
	s := &source{key: rng.New(9)}
	x := matrix(s, 4, 7)
	targets := []int32{6, -1, 0, 3}
	room := tensor.NewMat(4, 7)
	losses := make([]float64, 4)
	f := func() (sum float64) {
		for i := range x.Rows {
			copy(room.Row(i), x.Row(i))
		}
		CrossEntropy(losses, room, targets)
		for _, l := range losses {
			sum += l
		}
		return sum
	}
	f()
	if losses[1] != 0 {
		t.Errorf("a target that is not counted has loss %v", losses[1])
	}
	var all float64
	for _, v := range x.Row(2) {
		all += math.Exp(v)
	}
	if want := math.Log(all) - x.Row(2)[0]; !(math.Abs(losses[2]-want) <= 1e-14) {
		t.Errorf("loss is %v, want %v", losses[2], want)
	}
	got := tensor.NewMat(4, 7)
	for i := range x.Rows {
		copy(got.Row(i), x.Row(i))
	}
	CrossEntropyGrad(got, targets, 2)
	for i := range x.Rows {
		want := check.NumericGradient(f, x.Row(i))
		for j := range want {
			want[j] *= 2
		}
		holds(t, "cross-entropy", got.Row(i), want)
	}
}

// Self-attention and attention to a context of another length, with grouped
// heads.
func TestGradientsOfAttention(t *testing.T) {
	for variant := range 3 {
		cross, decay := variant == 1, variant == 2
		s := &source{key: rng.New(10)}
		mechanism, err := factorised.New(attention.Spec{Name: "test", Norm: attention.Standard, Coef: []float64{1, 1, 0.5}})
		if err != nil {
			t.Fatal(err)
		}
		const width, heads, keyHeads, d = 5, 4, 2, 3
		a := Attention{
			Q: Linear{W: weight(s, heads*d, width), B: weight(s, heads*d)},
			K: Linear{W: weight(s, keyHeads*d, width), B: weight(s, keyHeads*d)},
			V: Linear{W: weight(s, keyHeads*d, width), B: weight(s, keyHeads*d)},
			O: Linear{W: weight(s, width, heads*d), B: weight(s, width)},

			Mechanism: mechanism, H: heads, Hkv: keyHeads, D: d,
		}
		layers := map[string]*Linear{"q": &a.Q, "k": &a.K, "v": &a.V, "o": &a.O}
		if decay {
			a.Decay = &Decay{Gate: Linear{W: weight(s, keyHeads, width), B: weight(s, keyHeads)}}
			layers["gate"] = &a.Decay.Gate
		}
		x, dy := matrix(s, 6, width), matrix(s, 6, width)
		dx := matrix(s, 6, width)
		context, dcontext := x, dx
		scope := Scope{B: 2, Causal: true, KeyLens: []int64{3, 2}}
		if cross {
			context, dcontext = matrix(s, 8, width), tensor.NewMat(8, width)
			scope = Scope{B: 2, KeyLens: []int64{4, 3}}
		}
		var trace AttentionTrace
		f := func() float64 {
			y := tensor.NewMat(6, width)
			if err := a.ForwardTo(y, y, x, context, scope, &trace, true); err != nil {
				t.Fatal(err)
			}
			return sumOf(y, dy)
		}
		f()
		if err := a.BackwardTo(dx, dcontext, dy, x, context, &trace, new(Scratch)); err != nil {
			t.Fatal(err)
		}
		// Differences are less exact behind the normalisation of short rows.
		near := func(what string, got, want []float64) {
			t.Helper()
			if r := check.ErrorRatio(got, want, 1e-6*max(1, check.MaxAbs(want))); !(r <= 1) {
				t.Errorf("cross=%t decay=%t %s: gradient errs by %.3g of its largest", cross, decay, what, r*1e-6)
			}
		}
		for i := range x.Rows {
			near("dx", dx.Row(i), check.NumericGradient(f, x.Row(i)))
		}
		if cross {
			for i := range context.Rows {
				near("dcontext", dcontext.Row(i), check.NumericGradient(f, context.Row(i)))
			}
		}
		for name, l := range layers {
			for _, p := range []*param.Param{l.W, l.B} {
				want := check.NumericGradient(f, p.Data)
				for j := range want {
					want[j]++
				}
				near(name, p.Grad, want)
			}
		}
	}
}
