package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// TestPassesHaveTheBitsOfKeptPasses compares passes without Backward, with and without
// packed weights, with passes that Backward follows.
func TestPassesHaveTheBitsOfKeptPasses(t *testing.T) {
	t.Run("float32", testPackedPasses[float32])
	t.Run("float64", testPackedPasses[float64])
}

func testPackedPasses[T tensor.Float](t *testing.T) {
	defer par.SetThreads(0)
	const width, hidden = 140, 300
	s := &source{key: rng.New(43)}
	linear := func(out, in int) Linear[T] { return Linear[T]{W: weight[T](s, out, in), B: weight[T](s, out)} }
	softmax, err := factorised.New(attention.Spec[T]{Name: "softmax", Exp: true})
	if err != nil {
		t.Fatal(err)
	}
	branches := map[string]Branch[T]{
		"gelu":  &MLP[T]{UpProj: linear(hidden, width), DownProj: linear(width, hidden), Act: GELU},
		"relu":  &MLP[T]{UpProj: linear(hidden, width), DownProj: linear(width, hidden), Act: ReLU},
		"geglu": gated[T](s, width, hidden, GELU),
		"attention": &Attention[T]{
			Q: linear(width, width), K: linear(70, width), V: linear(70, width), O: linear(width, width),
			Mechanism: softmax, H: 4, Hkv: 2, D: 35,
		},
	}
	for name, branch := range branches {
		for _, rows := range []int{1, 5, 12, 64, rowTile, rowTile + 3, 3 * rowTile} {
			x, base := matrix[T](s, rows, width), matrix[T](s, rows, width)
			run := func(keep bool) []T {
				y := matrix[T](s, rows, width)
				if err := branch.Forward(y, base, x, Scope[T]{B: 1}, branch.NewTrace(), keep); err != nil {
					t.Fatal(err)
				}
				return flat(y)
			}
			want := run(true)
			for threads := 1; threads <= 3; threads++ {
				par.SetThreads(threads)
				plain := run(false)
				branch.(WeightPacker).PackWeights()
				packed, kept := run(false), run(true)
				branch.(WeightPacker).DropPacked()
				for what, got := range map[string][]T{"plain": plain, "packed": packed, "packed and kept": kept} {
					if !slices.Equal(got, want) {
						t.Errorf("%s, %d rows, %d threads, %s: bits differ", name, rows, threads, what)
					}
				}
			}
		}
	}
}

// A server steps and passes with one packed copy.
func TestFrozenLayersShareTheirPanels(t *testing.T) {
	l := Linear[float32]{W: new(param.Set[float32]).New("w", false, 64, 32)}
	alone := testing.AllocsPerRun(1, func() { l.Freeze(GEMVRows + 1) })
	l.PackWeights()
	if shared := testing.AllocsPerRun(1, func() { l.Freeze(GEMVRows + 1) }); shared >= alone {
		t.Errorf("%v allocations of a packed layer, %v of another: its panels are copied", shared, alone)
	}
}
