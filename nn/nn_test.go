package nn

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// gradientError is what central differences of fourth order, with steps of
// 1e-3, leave of a gradient's largest element.
const gradientError = 1e-9

// source draws the numbers of a test.
type source struct {
	key  rng.Key
	next uint64
}

func (s *source) normal() float64 {
	s.next++
	return s.key.Normal(s.next)
}

// matrix returns random elements within a wider matrix, so that strides differ
// from columns.
func matrix[T tensor.Float](s *source, rows, cols int) tensor.Mat[T] {
	m := tensor.NewMat[T](rows, cols+3)
	for i := range m.Data {
		m.Data[i] = T(s.normal())
	}
	return viewColumns(m, 2, 2+cols)
}

// weight returns a random weight, with a gradient that is not 0 from before.
func weight[T tensor.Float](s *source, shape ...int) *param.Param[T] {
	var set param.Set[T]
	p := set.New("w", true, shape...)
	for i := range p.Data {
		p.Data[i], p.Grad[i] = T(s.normal()), 1
	}
	return p
}

// layer is one layer as a test sees it: y [rows,out] from x [rows,in].
type layer struct {
	in, out int
	weights []*param.Param[float64]
	forward func(y, x tensor.Mat[float64])
	// backward sets dx; it follows forward with the same x.
	backward func(dx, dy, x tensor.Mat[float64])
}

// layers of odd sizes. All of them are rows by themselves but attention.
func layers(s *source) map[string]layer {
	linear := func(out, in int, bias bool) *Linear[float64] {
		l := &Linear[float64]{W: weight[float64](s, out, in)}
		if bias {
			l.B = weight[float64](s, out)
		}
		return l
	}
	all := map[string]layer{}
	for name, bias := range map[string]bool{"linear": false, "linear with bias": true} {
		l := linear(5, 7, bias)
		x := layer{in: 7, out: 5, weights: []*param.Param[float64]{l.W}}
		x.forward = func(y, x tensor.Mat[float64]) { l.Forward(y, x, false) }
		x.backward = func(dx, dy, x tensor.Mat[float64]) { l.Backward(dx, dy, x, false) }
		if bias {
			x.weights = append(x.weights, l.B)
		}
		all[name] = x
	}
	for name, bias := range map[string]bool{"norm": false, "norm with bias": true} {
		n := &LayerNorm[float64]{Gain: weight[float64](s, 7), Eps: 1e-5}
		x := layer{in: 7, out: 7, weights: []*param.Param[float64]{n.Gain}}
		var stats []float64
		x.forward = func(y, x tensor.Mat[float64]) {
			stats = make([]float64, 2*x.Rows)
			n.Forward(y, x, stats)
		}
		x.backward = func(dx, dy, x tensor.Mat[float64]) {
			for i := range dx.Rows {
				clear(dx.Row(i))
			}
			n.Backward(dx, dy, x, stats)
		}
		if bias {
			n.Bias = weight[float64](s, 7)
			x.weights = append(x.weights, n.Bias)
		}
		all[name] = x
	}
	rms := &RMSNorm[float64]{Gain: weight[float64](s, 7), Eps: 1e-5}
	var stats []float64
	all["rms norm"] = layer{
		in: 7, out: 7, weights: []*param.Param[float64]{rms.Gain},
		forward: func(y, x tensor.Mat[float64]) {
			stats = make([]float64, 2*x.Rows)
			rms.Forward(y, x, stats)
		},
		backward: func(dx, dy, x tensor.Mat[float64]) {
			for i := range dx.Rows {
				clear(dx.Row(i))
			}
			rms.Backward(dx, dy, x, stats)
		},
	}
	for name, act := range map[string]Activation{"swiglu": SiLU, "geglu": GELU, "gated relu": ReLU} {
		m := &GatedMLP[float64]{GateProj: *linear(9, 5, true), UpProj: *linear(9, 5, true), DownProj: *linear(5, 9, true), Act: act}
		var trace gatedMLPTrace[float64]
		all[name] = layer{
			in: 5, out: 5, weights: []*param.Param[float64]{m.GateProj.W, m.GateProj.B, m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B},
			forward: func(y, x tensor.Mat[float64]) {
				for i := range y.Rows {
					clear(y.Row(i))
				}
				m.Forward(y, y, x, Scope[float64]{}, &trace, true)
			},
			backward: func(dx, dy, x tensor.Mat[float64]) { m.Backward(dx, dy, x, &trace, nil) },
		}
	}
	m := &MLP[float64]{UpProj: *linear(9, 5, true), DownProj: *linear(5, 9, true)}
	var trace mlpTrace[float64]
	all["mlp"] = layer{
		in: 5, out: 5, weights: []*param.Param[float64]{m.UpProj.W, m.UpProj.B, m.DownProj.W, m.DownProj.B},
		forward: func(y, x tensor.Mat[float64]) {
			for i := range y.Rows {
				clear(y.Row(i))
			}
			m.Forward(y, y, x, Scope[float64]{}, &trace, true)
		},
		backward: func(dx, dy, x tensor.Mat[float64]) { m.Backward(dx, dy, x, &trace, nil) },
	}
	return all
}

// sequenceLayers work along two sequences of an even number of rows, shorter
// and longer than the convolution.
func sequenceLayers(s *source) map[string]layer {
	all := map[string]layer{}
	for name, taps := range map[string]int{"conv": 2, "long conv": 5} {
		c := &Conv[float64]{W: weight[float64](s, taps, 6)}
		all[name] = layer{
			in: 6, out: 6, weights: []*param.Param[float64]{c.W},
			forward:  func(y, x tensor.Mat[float64]) { c.Forward(y, x, 2, nil) },
			backward: func(dx, dy, x tensor.Mat[float64]) { c.Backward(dx, dy, x, 2, ConvEnds[float64]{}) },
		}
	}
	return all
}

// sumOf returns Σ y∘dy.
func sumOf(y, dy tensor.Mat[float64]) (s float64) {
	for i := range y.Rows {
		for j, v := range y.Row(i) {
			s += v * dy.Row(i)[j]
		}
	}
	return s
}

// flat returns the elements of m without those between its rows.
func flat[T tensor.Float](m tensor.Mat[T]) []T {
	var x []T
	for i := range m.Rows {
		x = append(x, m.Row(i)...)
	}
	return x
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
		x, y, dy := matrix[float64](s, rows, l.in), matrix[float64](s, rows, l.out), matrix[float64](s, rows, l.out)
		dx := matrix[float64](s, rows, l.in)
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

// Element by element, and in single precision within the roundings of a sum.
func TestLinearIsItsDefinition(t *testing.T) {
	for _, c := range []struct{ rows, out, in int }{{1, 1, 1}, {3, 5, 7}, {1, 67, 33}, {197, 65, 3}, {7, 259, 300}} {
		s := &source{key: rng.New(3)}
		l := Linear[float32]{W: weight[float32](s, c.out, c.in), B: weight[float32](s, c.out)}
		x, y := matrix[float32](s, c.rows, c.in), matrix[float32](s, c.rows, c.out)
		for _, acc := range []bool{false, true} {
			before := flat(y)
			l.Forward(y, x, acc)
			for i, got := range flat(y) {
				r, o := i/c.out, i%c.out
				want, size := float64(l.B.Data[o]), math.Abs(float64(l.B.Data[o]))
				if acc {
					want, size = want+float64(before[i]), size+math.Abs(float64(before[i]))
				}
				for j, v := range x.Row(r) {
					term := float64(v) * float64(l.W.Data[o*c.in+j])
					want, size = want+term, size+math.Abs(term)
				}
				// n roundings of a sum err by at most n·u·Σ|terms|.
				if d := math.Abs(float64(got) - want); !(d <= float64(c.in+3)*0x1p-24*size) {
					t.Fatalf("%v acc=%t: y[%d,%d] is %v, want %v", c, acc, r, o, got, want)
				}
			}
		}
	}
}

// What lies between the rows of a view is not touched.
func TestViewsKeepTheirNeighbours(t *testing.T) {
	for name, l := range layers(&source{key: rng.New(1)}) {
		s := &source{key: rng.New(4)}
		x, y, dy := matrix[float64](s, 5, l.in), matrix[float64](s, 5, l.out), matrix[float64](s, 5, l.out)
		dx := matrix[float64](s, 5, l.in)
		gaps := func(m tensor.Mat[float64]) (g []float64) {
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

// A row's output does not depend on the rows around it.
func TestRowsDoNotMeet(t *testing.T) {
	s := &source{key: rng.New(5)}
	l := Linear[float32]{W: weight[float32](s, 67, 300), B: weight[float32](s, 67)}
	m := MLP[float32]{UpProj: Linear[float32]{W: weight[float32](s, 45, 67)}, DownProj: Linear[float32]{W: weight[float32](s, 67, 45)}}
	n := LayerNorm[float32]{Gain: weight[float32](s, 67), Eps: 1e-5}
	run := func(x tensor.Mat[float32]) tensor.Mat[float32] {
		y, z := tensor.NewMat[float32](x.Rows, 67), tensor.NewMat[float32](x.Rows, 67)
		l.Forward(y, x, false)
		n.Forward(y, y, make([]float32, 2*x.Rows))
		m.Forward(z, z, y, Scope[float32]{}, new(mlpTrace[float32]), false)
		return z
	}
	x := matrix[float32](s, 211, 300)
	all := run(x)
	for _, i := range []int{0, 1, 97, 210} {
		if !slices.Equal(run(x.Slice(i, i+1)).Row(0), all.Row(i)) {
			t.Errorf("row %d depends on the rows around it", i)
		}
	}
}

func TestThreadsDoNotChangeBits(t *testing.T) {
	defer par.SetThreads(0)
	run := func(threads int) [][]float32 {
		par.SetThreads(threads)
		s := &source{key: rng.New(6)}
		m := MLP[float32]{
			UpProj:   Linear[float32]{W: weight[float32](s, 260, 97), B: weight[float32](s, 260)},
			DownProj: Linear[float32]{W: weight[float32](s, 97, 260), B: weight[float32](s, 97)},
		}
		n := LayerNorm[float32]{Gain: weight[float32](s, 97), Bias: weight[float32](s, 97), Eps: 1e-5}
		x, dy := matrix[float32](s, 1500, 97), matrix[float32](s, 1500, 97)
		y, z := tensor.NewMat[float32](1500, 97), tensor.NewMat[float32](1500, 97)
		dx, dz := tensor.NewMat[float32](1500, 97), tensor.NewMat[float32](1500, 97)
		stats := make([]float32, 3000)
		var trace mlpTrace[float32]
		n.Forward(y, x, stats)
		m.Forward(z, z, y, Scope[float32]{}, &trace, true)
		m.Backward(dz, dy, y, &trace, nil)
		n.Backward(dx, dz, x, stats)
		return [][]float32{z.Data, dx.Data, m.UpProj.W.Grad, m.UpProj.B.Grad, m.DownProj.W.Grad, m.DownProj.B.Grad, n.Gain.Grad, n.Bias.Grad}
	}
	one, three := run(1), run(3)
	for i := range one {
		if !slices.Equal(one[i], three[i]) {
			t.Errorf("result %d differs between one and three threads", i)
		}
	}
}

func TestEmbedding(t *testing.T) {
	s := &source{key: rng.New(7)}
	e := Embedding[float64]{W: weight[float64](s, 5, 3)}
	tokens := []int32{4, 0, 4, 2}
	y, dy := matrix[float64](s, 4, 3), matrix[float64](s, 4, 3)
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
	p := &Learned[float64]{W: weight[float64](s, 4, 3)}
	x, dy := matrix[float64](s, 6, 3), matrix[float64](s, 6, 3)
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
	p := NewSinusoidal[float64](width, amplitude, 4)
	// Within the table, over its end, and far beyond it.
	for _, start := range []int64{0, 2, 1 << 40} {
		x := tensor.NewMat[float64](6, width)
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
	x := matrix[float64](s, 4, 7)
	targets := []int32{6, -1, 0, 3}
	room := tensor.NewMat[float64](4, 7)
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
	got := tensor.NewMat[float64](4, 7)
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

// Logits that overflow every exponential, and one that is certain.
func TestCrossEntropyOfLargeLogits(t *testing.T) {
	x := viewMatrix([]float32{1e30, -1e30, 0, 300, 300, 299, 0, 0, 200}, 3, 3)
	losses := make([]float64, 3)
	CrossEntropy(losses, x, []int32{0, 1, 2})
	for i, want := range []float64{0, math.Log(2 + math.Exp(-1)), 0} {
		if d := math.Abs(losses[i] - want); !(d <= 4*0x1p-24) {
			t.Errorf("loss %d is %v, want %v", i, losses[i], want)
		}
	}
	g := viewMatrix([]float32{1e30, -1e30, 0}, 1, 3)
	CrossEntropyGrad(g, []int32{0}, 1)
	if !slices.Equal(g.Row(0), []float32{0, 0, 0}) {
		t.Errorf("gradient of a certain target is %v", g.Row(0))
	}
}

// Self-attention and attention to a context of another length, with grouped
// heads.
func TestGradientsOfAttention(t *testing.T) {
	for variant := range 3 {
		cross, decay := variant == 1, variant == 2
		s := &source{key: rng.New(10)}
		mechanism, err := factorised.New(attention.Spec[float64]{Name: "test", Norm: attention.Standard, Coef: []float64{1, 1, 0.5}})
		if err != nil {
			t.Fatal(err)
		}
		const width, heads, keyHeads, d = 5, 4, 2, 3
		a := Attention[float64]{
			Q: Linear[float64]{W: weight[float64](s, heads*d, width), B: weight[float64](s, heads*d)},
			K: Linear[float64]{W: weight[float64](s, keyHeads*d, width), B: weight[float64](s, keyHeads*d)},
			V: Linear[float64]{W: weight[float64](s, keyHeads*d, width), B: weight[float64](s, keyHeads*d)},
			O: Linear[float64]{W: weight[float64](s, width, heads*d), B: weight[float64](s, width)},

			Mechanism: mechanism, H: heads, Hkv: keyHeads, D: d,
		}
		layers := map[string]*Linear[float64]{"q": &a.Q, "k": &a.K, "v": &a.V, "o": &a.O}
		if decay {
			a.Decay = &Decay[float64]{Gate: Linear[float64]{W: weight[float64](s, keyHeads, width), B: weight[float64](s, keyHeads)}}
			layers["gate"] = &a.Decay.Gate
		}
		x, dy := matrix[float64](s, 6, width), matrix[float64](s, 6, width)
		dx := matrix[float64](s, 6, width)
		context, dcontext := x, dx
		scope := Scope[float64]{B: 2, Causal: true, KeyLens: []int64{3, 2}}
		if cross {
			context, dcontext = matrix[float64](s, 8, width), tensor.NewMat[float64](8, width)
			scope = Scope[float64]{B: 2, KeyLens: []int64{4, 3}}
		}
		var trace AttentionTrace[float64]
		f := func() float64 {
			y := tensor.NewMat[float64](6, width)
			if err := a.ForwardTo(y, y, x, context, scope, &trace, true); err != nil {
				t.Fatal(err)
			}
			return sumOf(y, dy)
		}
		f()
		if err := a.BackwardTo(dx, dcontext, dy, x, context, &trace, new(Scratch[float64])); err != nil {
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
			for _, p := range []*param.Param[float64]{l.W, l.B} {
				want := check.NumericGradient(f, p.Data)
				for j := range want {
					want[j]++
				}
				near(name, p.Grad, want)
			}
		}
	}
}
