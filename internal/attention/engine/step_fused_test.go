package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/states"
	"github.com/farfield-ml/farfield/tensor"
)

// firstDegrees are kernels whose states may renew: without a constant and with one,
// whose features have weights.
func firstDegrees() map[string]*oracle.Mechanism {
	return map[string]*oracle.Mechanism{
		"linear":   calltest.Textbook["linear"],
		"fastmax1": calltest.Textbook["fastmax1"],
		"a line":   {Norm: oracle.Unit, Scale: 0.5, Coef: []float64{1.5, 0.75}, Eps: 0.1},
	}
}

// aloneCall is a causal call whose query heads have a key head each.
func aloneCall(n, d, dv int, theta float64) *attention.Call {
	r := rand.New(rand.NewPCG(uint64(n), uint64(d)))
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 2, 3, n, d), K: calltest.Normal(r, 2, 3, n, d), V: calltest.Normal(r, 2, 3, n, dv), Causal: true, Theta: theta})
	c.Chunk = 1
	return c
}

// What changes a state otherwise between steps is seen by the next one.
func TestRenewedAfterOtherCalls(t *testing.T) {
	const n, d, dv = 40, 6, 16
	c := aloneCall(n, d, dv, 0)
	hidden := make([]bool, 2*n)
	for i := range hidden {
		hidden[i] = i%3 == 0
	}
	masked := *c
	masked.KeyMask = hidden
	for name, m := range firstDegrees() {
		e := mechanismOf(t, name, m)
		first := newState(t, e, c)
		out := calltest.Poisoned(2, 3, n, dv)
		steps(t, first, out, c, 0, 1, 2, 3, 10)
		if !first.HasClosedCount {
			t.Fatalf("%s: a state that is stepped looks at every head", name)
		}
		for what, change := range map[string]func(st *RecurrentState) error{
			"nothing": func(*RecurrentState) error { return nil },
			"a mask": func(st *RecurrentState) error {
				return st.Step(out.Tokens(10, 13), tokens(&masked, 10, 13))
			},
			"keys":    func(st *RecurrentState) error { return st.Absorb(tokens(c, 10, 13)) },
			"a query": func(st *RecurrentState) error { return st.Read(out.Tokens(10, 11), tokens(c, 10, 11)) },
			"a reset": func(st *RecurrentState) error { st.Reset(); return nil },
			"a merge": func(st *RecurrentState) error { return st.Merge(first) },
			"a total": func(st *RecurrentState) error {
				var total states.Total
				if err := states.TotalOf(&total, first); err != nil {
					return err
				}
				return states.SetTotal(st, &total)
			},
			"a decay": func(st *RecurrentState) error {
				p := tokens(c, 10, 12)
				p.LogG = tensor.NewHeads(2, 3, 2, 1)
				for i := range p.LogG.Data {
					p.LogG.Data[i] = -0.25
				}
				return st.Step(out.Tokens(10, 12), p)
			},
			"the end of a call": func(st *RecurrentState) error {
				p := tokens(c, 10, 13)
				p.Init, p.Final = first, st
				return e.Forward(out.Tokens(10, 13), p, nil)
			},
		} {
			// The same in a state that is restored, and so knows nothing.
			st := first.Clone().(*RecurrentState)
			steps(t, st, out, c, 10, 11)
			if !st.HasClosedCount {
				t.Fatalf("%s: a clone that is stepped looks at every head", name)
			}
			if err := change(st); err != nil {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			data, err := st.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			again, err := e.RestoreState(data)
			if err != nil {
				t.Fatal(err)
			}
			got, want := calltest.Poisoned(2, 3, 20, dv), calltest.Poisoned(2, 3, 20, dv)
			rest := tokens(c, 20, n)
			steps(t, st, got, rest, 0, 1, 2, 3, 9, 20)
			steps(t, again, want, rest, 0, 20)
			if !slices.Equal(got.Data, want.Data) {
				t.Errorf("%s: goes on otherwise after %s", name, what)
			}
			sameState(t, name+" after "+what, st, again)
		}
	}
}

// A state whose first token is masked goes on as one stream does, with steps that name
// no mask between those that do.
func TestRenewedBehindAMaskedToken(t *testing.T) {
	const n, d, dv = 6, 6, 16
	plain := aloneCall(n, d, dv, 0)
	c := *plain
	c.KeyMask = []bool{false, true, true, true, true, false, false, true, true, true, true, false}
	for name, m := range firstDegrees() {
		e := mechanismOf(t, name, m)
		want, got := calltest.Poisoned(2, 3, n, dv), calltest.Poisoned(2, 3, n, dv)
		steps(t, newState(t, e, &c), want, &c, 0, n)
		st := newState(t, e, &c)
		steps(t, st, got, &c, 0, 1)
		steps(t, st, got, plain, 1, 2, 3, 5)
		steps(t, st, got, &c, 5, n)
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: outputs have other bits", name)
		}
	}
}

// mapped is elu + 1 by the kernel.
type mapped struct{}

func (mapped) Dim(d int) int { return d }

func (mapped) Elementwise() {}

// A chunk of one token rounds the whole sum with every token. What that costs outputs of
// linear attention, over random tokens and over one that repeats itself, is in
// docs/numerics.md: weights are positive, so that the rigorous bound has no condition.
func TestRenewedLongStream(t *testing.T) {
	n := 1 << 14
	if testing.Short() {
		n = 1 << 12
	}
	const d, piece = 32, 256
	r := rand.New(rand.NewPCG(uint64(n), d))
	for _, what := range []string{"random tokens", "one token"} {
		q, k, v := calltest.Normal(r, 1, 1, piece, d), calltest.Normal(r, 1, 1, n, d), calltest.Normal(r, 1, 1, n, d)
		for i := range k.Data {
			if v.Data[i] = math.Abs(v.Data[i]); what == "one token" {
				k.Data[i], v.Data[i] = k.Data[i%d], v.Data[i%d]
			}
		}
		exact := linearOutputs(q, k, v)
		for _, shape := range []attention.Shape{{Chunk: 1}, {Chunk: 16}, {Chunk: 16, Carry: attention.Compensated}} {
			out := tensor.NewHeads(1, 1, piece, d)
			answers(t, mechanismOf(t, "linear", calltest.Textbook["linear"]), out, &attention.Call{Q: calltest.Convert(q), K: calltest.Convert(k), V: calltest.Convert(v)}, shape)
			var worst, most, largest float64
			for i, want := range exact.Data {
				worst, most = max(worst, math.Abs(float64(out.Data[i])-want)), max(most, math.Abs(want))
			}
			for _, x := range v.Data {
				largest = max(largest, x)
			}
			limit := float64(d+shape.Chunk+n/shape.Chunk) * 0x1p-24 * 2 * (largest + most)
			t.Logf("%d times %s, chunks of %d, %v: error %.2g of the largest number, %.2g of the bound", n, what, shape.Chunk, shape.Carry, worst/most, worst/limit)
			if !(worst <= limit) {
				t.Errorf("%s, chunks of %d: error %g, bound %g", what, shape.Chunk, worst, limit)
			}
		}
	}
}

// linearOutputs returns linear attention to all keys: sums in float64, key by key.
func linearOutputs(q, k, v oracle.Heads) oracle.Heads {
	mapped := func(x []float64) []float64 {
		y := make([]float64, len(x))
		for i, a := range x {
			y[i] = oracle.EluPlusOne.F(a)
		}
		return y
	}
	values, keys := make([]float64, q.D*v.D), make([]float64, q.D)
	for j := range k.N {
		for i, a := range mapped(k.Head(0, 0).Row(j)) {
			keys[i] += a
			for c, y := range v.Head(0, 0).Row(j) {
				values[i*v.D+c] += a * y
			}
		}
	}
	out := oracle.NewHeads(1, 1, q.N, v.D)
	for n := range q.N {
		row, den := out.Head(0, 0).Row(n), calltest.Textbook["linear"].Eps
		for i, a := range mapped(q.Head(0, 0).Row(n)) {
			den += a * keys[i]
			for c := range row {
				row[c] += a * values[i*v.D+c]
			}
		}
		for c := range row {
			row[c] /= den
		}
	}
	return out
}

// answers sets out to the outputs of c's queries after all keys, which come in steps
// with unused queries.
func answers(t *testing.T, e attention.Mechanism, out tensor.Heads, c *attention.Call, s attention.Shape) {
	t.Helper()
	st, err := e.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: c.Q.D, Dv: c.V.D, Chunk: s.Chunk, Carry: s.Carry})
	if err != nil {
		t.Fatal(err)
	}
	scratch := tensor.NewHeads(1, 1, c.Q.N, c.V.D)
	for j := 0; j < c.K.N; j += c.Q.N {
		if err := st.Step(scratch, &attention.Call{Q: c.Q, K: c.K.Tokens(j, j+c.Q.N), V: c.V.Tokens(j, j+c.Q.N)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Read(out, c); err != nil {
		t.Fatal(err)
	}
}

func (mapped) Map(dst, x []float) { kernel.Active[float]().EluPlusOne(dst, x) }

func (mapped) Grad(dx, dy, x []float) { kernel.Active[float]().EluPlusOneGrad(dx, dy, x) }

// A state whose chunks have one token has the bits of the linear form, however tokens
// come and whatever else becomes of it between them.
func TestRenewedPieces(t *testing.T) {
	const n = 150
	single := make([]int, n)
	for i := range single {
		single[i] = i + 1
	}
	for name, m := range firstDegrees() {
		e := mechanismOf(t, name, m)
		for _, shape := range [][2]int{{5, 3}, {16, 32}, {32, 48}, {200, 16}} {
			d, dv := shape[0], shape[1]
			for _, theta := range []float64{0, 100} {
				c := aloneCall(n, d, dv, theta)
				if got, want := e.Plan(c.Shape()).Renews, d < 176; got != want {
					t.Fatalf("%s, D = %d: renews: %v", name, d, got)
				}
				whole := newState(t, e, c)
				if err := whole.Absorb(c); err != nil {
					t.Fatal(err)
				}
				var want []float
				for way, cuts := range map[string][]int{"at once": {n}, "one by one": single, "in pieces": {1, 2, 66, 67, 68, 149, n}} {
					st, out := newState(t, e, c), calltest.Poisoned(2, 3, n, dv)
					steps(t, st, out, c, 0, cuts...)
					if want == nil {
						want = out.Data
					}
					if !slices.Equal(out.Data, want) {
						t.Errorf("%s, D = %d, Dv = %d: outputs %s have other bits", name, d, dv, way)
					}
					sameState(t, name+", stepped "+way, st, whole)
				}
				form, _ := calltest.Forward(t, e, c, attention.Linear)
				// Rows of mean 0 that are not rotated have a channel less there.
				if flat := m.Norm == oracle.Bounded && theta == 0; !flat && !slices.Equal(form.Data, want) {
					t.Errorf("%s, D = %d, Dv = %d: differs from the linear form", name, d, dv)
				}
			}
		}
	}
}

// Rows that lie one behind the other are mapped at once.
func TestRenewedWhereverRowsLie(t *testing.T) {
	const n, d, dv = 12, 16, 32
	for name, m := range firstDegrees() {
		e := mechanismOf(t, name, m)
		c := aloneCall(n, d, dv, 0)
		apart := *c
		for _, x := range []*tensor.Heads{&apart.Q, &apart.K, &apart.V} {
			*x = gapped(*x)
		}
		var outs [2][]float
		for i, c := range []*attention.Call{c, &apart} {
			out := calltest.Poisoned(2, 3, n, dv)
			steps(t, newState(t, e, c), out, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
			outs[i] = out.Data
		}
		if !slices.Equal(outs[0], outs[1]) {
			t.Errorf("%s: rows with gaps give other bits", name)
		}
	}
}

// gapped returns x with the tokens of a batch row behind one another, as projections
// leave them, and three numbers after each.
func gapped(x tensor.Heads) tensor.Heads {
	width := x.H*x.D + 3
	y := tensor.Split(make([]float, x.B*x.N*width), x.B, x.N, width, 0, x.H, x.D)
	for b := range x.B {
		for h := range x.H {
			for i := range x.N {
				copy(y.Head(b, h).Row(i), x.Head(b, h).Row(i))
			}
		}
	}
	return y
}

// BenchmarkStepHeads steps states of linear attention with 8 heads of width 32, which the
// second-level cache holds or none does, in chunks as they are by themselves and of one
// token.
func BenchmarkStepHeads(b *testing.B) {
	defer par.SetThreads(par.Threads())
	par.SetThreads(1)
	const h, d = 8, 32
	e, err := newMechanism(attention.Spec{Name: "linear", Scale: 1, Map: mapped{}, Coef: []float64{0, 1}, Eps: 1e-6, Positive: true})
	if err != nil {
		b.Fatal(err)
	}
	for _, batch := range []int{8, 1024} {
		for _, chunk := range []int{0, 1} {
			b.Run(fmt.Sprintf("heads=%d/chunk=%d", batch*h, chunk), func(b *testing.B) {
				st, err := e.NewState(attention.Shape{B: batch, H: h, Hkv: h, D: d, Dv: d, Chunk: chunk})
				if err != nil {
					b.Fatal(err)
				}
				rows := make([]float, batch*h*d)
				for i := range rows {
					rows[i] = float(i%7) - 3
				}
				x, out := tensor.Split(rows, batch, 1, h*d, 0, h, d), tensor.NewHeads(batch, h, 1, d)
				c := &attention.Call{Q: x, K: x, V: x}
				for b.Loop() {
					if err := st.Step(out, c); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch*h), "ns/head")
			})
		}
	}
}
