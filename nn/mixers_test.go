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
func built(t testing.TB, s subject, context int) (Mixer, []*param.Param) {
	t.Helper()
	row, owns := LookupMixer(s.name)
	if !owns {
		t.Fatalf("there is no mixer %s", s.name)
	}
	var set param.Set
	w := &WeightMaker{Bias: true, Deviation: func(int) float64 { return 0.5 }, Residual: 1, New: func(name string, decay bool, first Initializer, shape ...int) *param.Param {
		p := set.New(name, decay, shape...)
		key := rng.New(21).Fold(uint64(len(set.All())))
		for i := range p.Data {
			p.Data[i] = float(first(key, uint64(i)) + 0.3*key.Fold(1).Normal(uint64(i)))
		}
		return p
	}}
	m, err := NewMixer(row, s.width, mechanism.Options{Heads: s.heads, Length: context, Set: s.set}, w)
	if err != nil {
		t.Fatal(err)
	}
	return m, set.All()
}

// mixed returns what a mixer adds to 0.
func mixed(t testing.TB, m Mixer, x tensor.Mat, s Scope) tensor.Mat {
	t.Helper()
	y := tensor.NewMat(x.Rows, x.Cols)
	if err := m.Forward(y, y, x, s, m.NewTrace(), false); err != nil {
		t.Fatal(err)
	}
	return y
}

// feed continues sequences by n0 ≤ n < n1 of the rows of x, and returns what
// comes of them.
func feed(t testing.TB, m Mixer, state State, frozen bool, x tensor.Mat, b, n0, n1 int) tensor.Mat {
	t.Helper()
	n := x.Rows / b
	part, y := tensor.NewMat(b*(n1-n0), x.Cols), tensor.NewMat(b*(n1-n0), x.Cols)
	for r := range b {
		for i := range n1 - n0 {
			copy(part.Row(r*(n1-n0)+i), x.Row(r*n+n0+i))
		}
	}
	var stepper Stepper = m
	if frozen {
		stepper = m.Freeze(part.Rows)
	}
	if err := stepper.Step(y, part, state, Scope{B: b, Causal: true}, m.NewTrace()); err != nil {
		t.Fatal(err)
	}
	return y
}

func testSteps(t *testing.T, limit float64) {
	const b, n = 2, 131
	for _, x := range subjects() {
		m, _ := built(t, x, n)
		if !m.Traits().Causal {
			continue
		}
		s := &source{key: rng.New(41)}
		in := matrix(s, b*n, x.width)
		whole := mixed(t, m, in, Scope{B: b, Causal: true})
		want := widened(whole.Data)
		var first tensor.Mat
		for _, cut := range [][]int{{n}, {1, 2, 97, n - 100}, slices.Repeat([]int{1}, n)} {
			state, err := m.NewState(b)
			if err != nil {
				t.Fatal(err)
			}
			y := tensor.NewMat(b*n, x.width)
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
	t.Run(check.Precision, func(t *testing.T) { testSteps(t, 64*check.Pick(0x1p-24, 0x1p-53)) })
}

// The state of those that stream does not grow.
func TestStatesOfMixers(t *testing.T) {
	for _, x := range subjects() {
		m, _ := built(t, x, 300)
		if !m.Traits().Causal {
			continue
		}
		state, err := m.NewState(1)
		if err != nil {
			t.Fatal(err)
		}
		in := matrix(&source{key: rng.New(43)}, 300, x.width)
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

// Once the memory is there a pass allocates none that grows with the tokens.
func TestMixersKeepTheirMemory(t *testing.T) {
	if raced {
		t.Skip("the race detector makes pools lose what they have")
	}
	defer par.SetThreads(0)
	par.SetThreads(1)
	for _, x := range subjects() {
		const n = 200
		m, _ := built(t, x, n)
		in := matrix(&source{key: rng.New(61)}, n, x.width)
		y, dx, tr, s := tensor.NewMat(n, x.width), tensor.NewMat(n, x.width), m.NewTrace(), new(Scratch)
		run := func() {
			if err := m.Forward(y, in, in, Scope{B: 1, Causal: m.Traits().Causal}, tr, true); err != nil {
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
		if _, err := NewMixer(row, 8, x.o, &WeightMaker{}); err == nil || err.Error() != x.want {
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
func widened(x []float) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}
