//go:build !float64

package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// Layers with weights of 16 bits have the bits of layers of float32 whose weights are rounded,
// whatever the number of rows, in passes and in steps.
func TestHalvesAreRoundedWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	up, gate, down := randomLinear(r, 200, 70), randomLinear(r, 200, 70), randomLinear(r, 70, 200)
	type layer interface {
		Forward(y, base, x tensor.Mat, s Scope, tr Trace, keep bool) error
		NewTrace() Trace
		Freeze(rows int) Stepper
	}
	compress := func(list ...*Linear) {
		for _, l := range list {
			if err := l.Compress(BFloat16); err != nil {
				t.Fatal(err)
			}
		}
	}
	low := &mlp{UpProj: up.clone(), DownProj: down.clone(), Act: TanhGELU}
	compress(&low.UpProj, &low.DownProj)
	lowGated := &gatedMLP{GateProj: gate.clone(), UpProj: up.clone(), DownProj: down.clone(), Act: SiLU}
	compress(&lowGated.GateProj, &lowGated.UpProj, &lowGated.DownProj)
	for _, pair := range [][2]layer{
		{low, &mlp{UpProj: up.rounded(), DownProj: down.rounded(), Act: TanhGELU}},
		{lowGated, &gatedMLP{GateProj: gate.rounded(), UpProj: up.rounded(), DownProj: down.rounded(), Act: SiLU}},
	} {
		for _, rows := range []int{1, 3, 5, 130, 700} {
			x, base := randomMat(r, rows, 70), randomMat(r, rows, 70)
			y := [2]tensor.Mat{randomMat(r, rows, 70), randomMat(r, rows, 70)}
			for i, l := range pair {
				if err := l.Forward(y[i], base, x, Scope{}, l.NewTrace(), false); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(y[0].Data, y[1].Data) {
				t.Errorf("%T of %d rows differs from rounded weights", pair[0], rows)
			}
			for i, l := range pair {
				copyRows(y[i], base)
				if err := l.Freeze(rows).Step(y[i], x, nil, Scope{}, l.NewTrace()); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(y[0].Data, y[1].Data) {
				t.Errorf("a step of %T of %d rows differs from rounded weights", pair[0], rows)
			}
		}
	}
}

// A row's outputs with weights of 8 bits depend on no other row and on no number of threads.
func TestBytesGiveARowTheSameBits(t *testing.T) {
	defer par.SetThreads(0)
	r := rand.New(rand.NewPCG(3, 4))
	l := randomLinear(r, 150, 90)
	if err := l.Compress(Int8); err != nil {
		t.Fatal(err)
	}
	x := randomMat(r, 300, 90)
	want := randomMat(r, 300, 150)
	for i := range x.Rows {
		l.Forward(want.Slice(i, i+1), x.Slice(i, i+1), false)
	}
	for _, threads := range []int{1, 2, 3} {
		par.SetThreads(threads)
		for _, rows := range []int{2, 129, 300} {
			y := randomMat(r, rows, 150)
			if l.Forward(y, x.Slice(0, rows), false); !slices.Equal(y.Data, want.Data[:rows*150]) {
				t.Errorf("%d rows on %d threads have other bits", rows, threads)
			}
		}
	}
}
