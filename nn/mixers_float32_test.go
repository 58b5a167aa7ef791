//go:build !float64

package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Bits depend neither on the threads nor on other sequences nor, where it is
// causal, on later tokens.
func TestBitsOfMixers(t *testing.T) {
	defer par.SetThreads(0)
	const b, n = 3, 150
	for _, x := range subjects() {
		x.width *= 16 // work enough to be shared
		m, weights := built(t, x, n)
		s := &source{key: rng.New(51)}
		in, dy := matrix(s, b*n, x.width), matrix(s, b*n, x.width)
		scope := Scope{B: b, Causal: m.Traits().Causal}
		run := func(threads int, in, dy tensor.Mat, b int) [][]float32 {
			par.SetThreads(threads)
			scope.B = b
			for _, p := range weights {
				clear(p.Grad)
			}
			y, dx, tr := matrix(s, in.Rows, x.width), matrix(s, in.Rows, x.width), m.NewTrace()
			if err := m.Forward(y, in, in, scope, tr, true); err != nil {
				t.Fatal(err)
			}
			if err := m.Backward(dx, dy, in, tr, new(Scratch)); err != nil {
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
		before := mixed(t, m, in.Slice(0, n), Scope{B: 1, Causal: true})
		row := in.Row(100)
		for i := range row {
			row[i] += 3
		}
		after := mixed(t, m, in.Slice(0, n), Scope{B: 1, Causal: true})
		for i := range n {
			if changed := !slices.Equal(before.Row(i), after.Row(i)); changed != (i >= 100) && i <= 100 {
				t.Errorf("%v: a change of token 100 changes token %d: %t", x, i, changed)
			}
		}
	}
}
