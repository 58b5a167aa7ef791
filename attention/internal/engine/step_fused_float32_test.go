//go:build !float64

package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

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
				var want []float32
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
		var outs [2][]float32
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
	y := tensor.Split(make([]float32, x.B*x.N*width), x.B, x.N, width, 0, x.H, x.D)
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
				rows := make([]float32, batch*h*d)
				for i := range rows {
					rows[i] = float32(i%7) - 3
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
