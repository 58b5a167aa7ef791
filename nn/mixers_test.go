package nn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// subject is a mixer with settings.
type subject struct {
	name         string
	set          map[string]string
	width, heads int
}

func (s subject) String() string { return fmt.Sprint(s.name, s.set) }

// subjects has every row of mixers at least once.
func subjects() []subject {
	return []subject{
		{"mamba-2", map[string]string{"state": "5", "conv": "3"}, 6, 3},
		{"mamba-2", map[string]string{"state": "3", "expand": "1", "groups": "2", "conv": "1"}, 8, 4},
		{"retnet", map[string]string{"eps": "0.1"}, 6, 1},
		{"retnet", map[string]string{"expand": "3", "eps": "0.2"}, 6, 2},
		{"retnet", map[string]string{"expand": "1", "form": "paper", "eps": "0.1"}, 8, 2},
		{"crate", nil, 6, 2},
		{"hyena", map[string]string{"filter": "5", "features": "5", "freq": "1"}, 5, 1},
		{"hyena", map[string]string{"filter": "4", "features": "3", "order": "3", "form": "code", "conv": "1", "freq": "3"}, 4, 2},
	}
}

func TestEveryMixerIsASubject(t *testing.T) {
	for _, name := range MixerNames() {
		if !slices.ContainsFunc(subjects(), func(s subject) bool { return s.name == name }) {
			t.Errorf("%s is not tested", name)
		}
		if slices.Contains(mechanism.Names(), name) {
			t.Errorf("%s is a mechanism, too", name)
		}
	}
}

// built makes a mixer with weights that have left their first values.
func built[T tensor.Float](t testing.TB, s subject, context int) (Mixer[T], []*param.Param[T]) {
	t.Helper()
	row, owns := LookupMixer(s.name)
	if !owns {
		t.Fatalf("there is no mixer %s", s.name)
	}
	var set param.Set[T]
	w := &WeightMaker[T]{Bias: true, Deviation: func(int) float64 { return 0.5 }, Residual: 1, New: func(name string, decay bool, first Initializer, shape ...int) *param.Param[T] {
		p := set.New(name, decay, shape...)
		key := rng.New(21).Fold(uint64(len(set.All())))
		for i := range p.Data {
			p.Data[i] = T(first(key, uint64(i)) + 0.3*key.Fold(1).Normal(uint64(i)))
		}
		return p
	}}
	m, err := NewMixer(row, s.width, mechanism.Options{Heads: s.heads, Length: context, Set: s.set}, w)
	if err != nil {
		t.Fatal(err)
	}
	return m, set.All()
}

// scopes are those that a mixer takes.
func scopes(m Mixer[float64]) []Scope[float64] {
	var list []Scope[float64]
	if x := m.Traits(); x.Causal {
		list = append(list, Scope[float64]{B: 2, Causal: true})
	}
	if !m.Traits().CausalOnly {
		list = append(list, Scope[float64]{B: 2}, Scope[float64]{B: 2, KeyLens: []int64{3, 5}})
	}
	return list
}

func TestGradientsOfMixers(t *testing.T) {
	for _, x := range subjects() {
		const n = 5
		m, weights := built[float64](t, x, n)
		for _, scope := range scopes(m) {
			s := &source{key: rng.New(31)}
			in, dy := matrix[float64](s, 2*n, x.width), matrix[float64](s, 2*n, x.width)
			dx := matrix[float64](s, 2*n, x.width)
			tr := m.NewTrace()
			f := func() float64 {
				y := tensor.NewMat[float64](2*n, x.width)
				if err := m.Forward(y, y, in, scope, tr, true); err != nil {
					t.Fatal(err)
				}
				return sumOf(y, dy)
			}
			f()
			for _, p := range weights {
				for i := range p.Grad {
					p.Grad[i] = 1 // is added to
				}
			}
			if err := m.Backward(dx, dy, in, tr, new(Scratch[float64])); err != nil {
				t.Fatal(err)
			}
			near := func(what string, got, want []float64) {
				t.Helper()
				if r := check.ErrorRatio(got, want, 1e-7*max(1, check.MaxAbs(want))); !(r <= 1) {
					t.Errorf("%v causal=%t %s: gradient errs by %.3g of its largest", x, scope.Causal, what, r*1e-7)
				}
			}
			for i := range in.Rows {
				near("dx", dx.Row(i), check.NumericGradient(f, in.Row(i)))
			}
			for _, p := range weights {
				want := check.NumericGradient(f, p.Data)
				for j := range want {
					want[j]++
				}
				near(p.Name, p.Grad, want)
			}
		}
	}
}

// Over sequences of many chunks, where other forms run, along directions in which
// every element has a part.
func TestGradientsOfMixersOverChunks(t *testing.T) {
	for _, x := range subjects() {
		const n = 230
		m, weights := built[float64](t, x, n)
		s := &source{key: rng.New(33)}
		in, dy := matrix[float64](s, n, x.width), matrix[float64](s, n, x.width)
		dx, y, tr := tensor.NewMat[float64](n, x.width), tensor.NewMat[float64](n, x.width), m.NewTrace()
		f := func() float64 {
			clear(y.Data)
			if err := m.Forward(y, y, in, Scope[float64]{B: 1, Causal: m.Traits().Causal}, tr, true); err != nil {
				t.Fatal(err)
			}
			return sumOf(y, dy)
		}
		f()
		if err := m.Backward(dx, dy, in, tr, new(Scratch[float64])); err != nil {
			t.Fatal(err)
		}
		slope := func(what string, data, grad []float64) {
			t.Helper()
			from, way := slices.Clone(data), make([]float64, len(data))
			var got, length float64
			for i := range way {
				way[i] = s.normal() / math.Sqrt(float64(len(way)))
				got += way[i] * grad[i]
				length += grad[i] * grad[i]
			}
			at := []float64{0}
			want := check.NumericGradientBy(1e-4, func() float64 {
				for i := range data {
					data[i] = from[i] + at[0]*way[i]
				}
				return f()
			}, at)[0]
			copy(data, from)
			if d := math.Abs(got - want); !(d <= 1e-7*(1+math.Sqrt(length))) {
				t.Errorf("%v %s: slope is %v, want %v", x, what, got, want)
			}
		}
		data := flat(in)
		grad := flat(dx)
		strided := in
		in = viewMatrix(data, n, x.width)
		slope("dx", data, grad)
		in = strided
		for _, p := range weights {
			slope(p.Name, p.Data, p.Grad)
		}
	}
}

// mixed returns what a mixer adds to 0.
func mixed[T tensor.Float](t testing.TB, m Mixer[T], x tensor.Mat[T], s Scope[T]) tensor.Mat[T] {
	t.Helper()
	y := tensor.NewMat[T](x.Rows, x.Cols)
	if err := m.Forward(y, y, x, s, m.NewTrace(), false); err != nil {
		t.Fatal(err)
	}
	return y
}

// feed continues sequences by n0 ≤ n < n1 of the rows of x, and returns what
// comes of them.
func feed[T tensor.Float](t testing.TB, m Mixer[T], state State[T], frozen bool, x tensor.Mat[T], b, n0, n1 int) tensor.Mat[T] {
	t.Helper()
	n := x.Rows / b
	part, y := tensor.NewMat[T](b*(n1-n0), x.Cols), tensor.NewMat[T](b*(n1-n0), x.Cols)
	for r := range b {
		for i := range n1 - n0 {
			copy(part.Row(r*(n1-n0)+i), x.Row(r*n+n0+i))
		}
	}
	var stepper Stepper[T] = m
	if frozen {
		stepper = m.Freeze(part.Rows)
	}
	if err := stepper.Step(y, part, state, Scope[T]{B: b, Causal: true}, m.NewTrace()); err != nil {
		t.Fatal(err)
	}
	return y
}

func testSteps[T tensor.Float](t *testing.T, limit float64) {
	const b, n = 2, 131
	for _, x := range subjects() {
		m, _ := built[T](t, x, n)
		if !m.Traits().Causal {
			continue
		}
		s := &source{key: rng.New(41)}
		in := matrix[T](s, b*n, x.width)
		whole := mixed(t, m, in, Scope[T]{B: b, Causal: true})
		want := widened(whole.Data)
		var first tensor.Mat[T]
		for _, cut := range [][]int{{n}, {1, 2, 97, n - 100}, slices.Repeat([]int{1}, n)} {
			state, err := m.NewState(b)
			if err != nil {
				t.Fatal(err)
			}
			y := tensor.NewMat[T](b*n, x.width)
			at := 0
			for i, size := range cut {
				part := feed(t, m, state, true, in, b, at, at+size)
				for r := range b {
					for i := range size {
						copy(y.Row(r*n+at+i), part.Row(r*size+i))
					}
				}
				at += size
				if i%3 != 1 {
					continue
				}
				// Saved, restored and cloned it goes on with the same bits.
				data, err := state.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				restored, err := m.RestoreState(b, data)
				if err != nil {
					t.Fatal(err)
				}
				if state = restored.Clone(); state.Tokens() != int64(at) {
					t.Errorf("%v: %d tokens, want %d", x, state.Tokens(), at)
				}
			}
			if r := check.ErrorRatio(y.Data, want, limit*check.MaxAbs(want)); !(r <= 1) {
				t.Errorf("%v, pieces of %d: steps err by %.3g of the largest, %.3g is allowed", x, cut[0], r*limit, limit)
			}
			if first.Data == nil {
				first = y
			} else if !slices.Equal(first.Data, y.Data) {
				t.Errorf("%v: bits depend on the pieces %v", x, cut[:min(len(cut), 4)])
			}
			state.Reset()
			if again := feed(t, m, state, true, in, b, 0, 1); state.Tokens() != 1 || !slices.Equal(again.Row(1), y.Row(n)) {
				t.Errorf("%v: after Reset it goes on otherwise", x)
			}
		}
	}
}

func TestStepsOfMixers(t *testing.T) {
	t.Run("float32", func(t *testing.T) { testSteps[float32](t, 64*0x1p-24) })
	t.Run("float64", func(t *testing.T) { testSteps[float64](t, 64*0x1p-53) })
}

// The state of those that stream does not grow.
func TestStatesOfMixers(t *testing.T) {
	for _, x := range subjects() {
		m, _ := built[float32](t, x, 300)
		if !m.Traits().Causal {
			continue
		}
		state, err := m.NewState(1)
		if err != nil {
			t.Fatal(err)
		}
		in := matrix[float32](&source{key: rng.New(43)}, 300, x.width)
		feed(t, m, state, true, in, 1, 0, 1)
		before := state.Bytes()
		feed(t, m, state, true, in, 1, 1, 300)
		if grows := state.Bytes() != before; grows == m.Traits().Streaming || before == 0 {
			t.Errorf("%v: %d bytes after a token, %d after 300; it streams: %t", x, before, state.Bytes(), m.Traits().Streaming)
		}
		data, err := state.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, len(data) / 2, len(data) - 1} {
			if _, err := m.RestoreState(1, data[:size]); err == nil {
				t.Errorf("%v: a snapshot of %d of %d bytes is accepted", x, size, len(data))
			}
		}
		if _, err := m.RestoreState(1, append(data, 0)); err == nil {
			t.Errorf("%v: a snapshot with a byte behind it is accepted", x)
		}
	}
}

// Bits depend neither on the threads nor on other sequences nor, where it is
// causal, on later tokens.
func TestBitsOfMixers(t *testing.T) {
	defer par.SetThreads(0)
	const b, n = 3, 150
	for _, x := range subjects() {
		x.width *= 16 // work enough to be shared
		m, weights := built[float32](t, x, n)
		s := &source{key: rng.New(51)}
		in, dy := matrix[float32](s, b*n, x.width), matrix[float32](s, b*n, x.width)
		scope := Scope[float32]{B: b, Causal: m.Traits().Causal}
		run := func(threads int, in, dy tensor.Mat[float32], b int) [][]float32 {
			par.SetThreads(threads)
			scope.B = b
			for _, p := range weights {
				clear(p.Grad)
			}
			y, dx, tr := matrix[float32](s, in.Rows, x.width), matrix[float32](s, in.Rows, x.width), m.NewTrace()
			if err := m.Forward(y, in, in, scope, tr, true); err != nil {
				t.Fatal(err)
			}
			if err := m.Backward(dx, dy, in, tr, new(Scratch[float32])); err != nil {
				t.Fatal(err)
			}
			all := [][]float32{flat(y), flat(dx)}
			for _, p := range weights {
				all = append(all, slices.Clone(p.Grad))
			}
			return all
		}
		one, three := run(1, in, dy, b), run(3, in, dy, b)
		for i := range one {
			if !slices.Equal(one[i], three[i]) {
				t.Errorf("%v: result %d depends on the threads", x, i)
			}
		}
		alone := run(2, in.Slice(n, 2*n), dy.Slice(n, 2*n), 1)
		for i := range 2 {
			if !slices.Equal(alone[i], one[i][n*x.width:][:n*x.width]) {
				t.Errorf("%v: result %d of a sequence depends on the others", x, i)
			}
		}
		if !m.Traits().Causal {
			continue
		}
		before := mixed(t, m, in.Slice(0, n), Scope[float32]{B: 1, Causal: true})
		row := in.Row(100)
		for i := range row {
			row[i] += 3
		}
		after := mixed(t, m, in.Slice(0, n), Scope[float32]{B: 1, Causal: true})
		for i := range n {
			if changed := !slices.Equal(before.Row(i), after.Row(i)); changed != (i >= 100) && i <= 100 {
				t.Errorf("%v: a change of token 100 changes token %d: %t", x, i, changed)
			}
		}
	}
}

// Once the memory is there a pass allocates none that grows with the tokens.
func TestMixersKeepTheirMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector makes pools lose what they have")
	}
	defer par.SetThreads(0)
	par.SetThreads(1)
	for _, x := range subjects() {
		const n = 200
		m, _ := built[float32](t, x, n)
		in := matrix[float32](&source{key: rng.New(61)}, n, x.width)
		y, dx, tr, s := tensor.NewMat[float32](n, x.width), tensor.NewMat[float32](n, x.width), m.NewTrace(), new(Scratch[float32])
		run := func() {
			if err := m.Forward(y, in, in, Scope[float32]{B: 1, Causal: m.Traits().Causal}, tr, true); err != nil {
				t.Fatal(err)
			}
			if err := m.Backward(dx, in, in, tr, s); err != nil {
				t.Fatal(err)
			}
		}
		run()
		least := int64(math.MaxInt64)
		for range 8 {
			least = min(least, check.AllocatedBytes(run))
		}
		if least >= 4*n*int64(x.width) {
			t.Errorf("%v: a pass allocates %d bytes", x, least)
		}
	}
}

// A row refuses settings that are not its own.
func TestRefusalsOfMixers(t *testing.T) {
	row, _ := LookupMixer("mamba-2")
	for _, x := range []struct {
		o    mechanism.Options
		want string
	}{
		{mechanism.Options{Heads: 2, Set: map[string]string{"states": "3"}}, "mamba-2: setting states=3: unknown; allowed: state, expand, conv, groups"},
		{mechanism.Options{Heads: 2, Set: map[string]string{"state": "0"}}, "mamba-2: setting state=0: needs a whole number from 1 to 1024"},
		{mechanism.Options{Heads: 2, Set: map[string]string{"groups": "3"}}, "mamba-2: setting groups=3: does not divide 2 heads"},
		{mechanism.Options{Heads: 2, Order: 2}, "mamba-2: order 2: it has no order"},
	} {
		if _, err := NewMixer(row, 8, x.o, &WeightMaker[float32]{}); err == nil || err.Error() != x.want {
			t.Errorf("error is %v, want %s", err, x.want)
		}
	}
	if err := NotAFunction("mamba-2"); err == nil {
		t.Error("mamba-2 is taken for a function")
	}
	if err := NotAFunction("softmax"); err != nil {
		t.Error(err)
	}
}

// widened returns x in float64.
func widened[T tensor.Float](x []T) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}
