package nn

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

// TestPassesHaveTheBitsOfKeptPasses compares passes without Backward, with and without
// packed weights, with passes that Backward follows.
func TestPassesHaveTheBitsOfKeptPasses(t *testing.T) {
	t.Run(check.Precision, testPackedPasses)
}

func testPackedPasses(t *testing.T) {
	defer par.SetThreads(0)
	const width, hidden = 140, 300
	s := &source{key: rng.New(43)}
	linear := func(out, in int) Linear { return Linear{W: weight(s, out, in), B: weight(s, out)} }
	softmax, err := factorised.New(attention.Spec{Name: "softmax", Exp: true})
	if err != nil {
		t.Fatal(err)
	}
	branches := map[string]Branch{
		"gelu":  &mlp{UpProj: linear(hidden, width), DownProj: linear(width, hidden), Act: GELU},
		"relu":  &mlp{UpProj: linear(hidden, width), DownProj: linear(width, hidden), Act: ReLU},
		"geglu": gated(s, width, hidden, GELU),
		"attention": &Attention{
			Q: linear(width, width), K: linear(70, width), V: linear(70, width), O: linear(width, width),
			Mechanism: softmax, H: 4, Hkv: 2, D: 35,
		},
	}
	for name, branch := range branches {
		for _, rows := range []int{1, 5, 12, 64, rowTile, rowTile + 3, 3 * rowTile} {
			x, base := matrix(s, rows, width), matrix(s, rows, width)
			run := func(keep bool) []float {
				y := matrix(s, rows, width)
				if err := branch.Forward(y, base, x, Scope{B: 1}, branch.NewTrace(), keep); err != nil {
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
				for what, got := range map[string][]float{"plain": plain, "packed": packed, "packed and kept": kept} {
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
	l := Linear{W: new(param.Set).New("w", false, 64, 32)}
	alone := testing.AllocsPerRun(1, func() { l.Freeze(GEMVRows + 1) })
	l.PackWeights()
	if shared := testing.AllocsPerRun(1, func() { l.Freeze(GEMVRows + 1) }); shared >= alone {
		t.Errorf("%v allocations of a packed layer, %v of another: its panels are copied", shared, alone)
	}
}
