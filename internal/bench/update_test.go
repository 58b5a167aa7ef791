package bench

import (
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
)

// An update has the gradient of its whole batch, in however many passes it is made.
func TestPassesMakeOneUpdate(t *testing.T) {
	c := model.Config{
		Kind: model.Encoder, Vocab: 11, Outputs: 3, Pool: model.PoolMean, Parts: 2, HeadHidden: 8, Layers: 1, Heads: 2, Width: 8,
		Context: 10, Positions: model.Learned, Bias: true, Mechanism: "fastmax",
	}
	defer par.SetThreads(par.Threads())
	var want []float32
	for _, of := range [][3]int{{1, 1, 1}, {2, 1, 1}, {6, 1, 1}, {6, 3, 3}, {6, 2, 2}, {2, 2, 1}, {6, 4, 1}} {
		passes := of[0]
		par.SetThreads(of[1])
		u, err := NewUpdate(c, 12/passes, passes)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Run(); err != nil {
			t.Fatal(err)
		}
		if got := len(u.Models()); got != of[2] {
			t.Errorf("%d models make %d passes on %d threads, want %d", got, passes, of[1], of[2])
		}
		for _, m := range u.Models() {
			for i, p := range m.Params().All() {
				if !slices.Equal(p.Data, u.Model.Params().All()[i].Data) {
					t.Fatalf("models have different weights after %d passes on %d threads", passes, of[1])
				}
			}
		}
		if b := &u.Batch; b.B != 12/passes || b.N != c.Context || len(b.Tokens) != b.B*b.N {
			t.Errorf("%d passes are of %d sequences of %d tokens, %d in all", passes, b.B, b.N, len(b.Tokens))
		}
		var got []float32
		for _, p := range u.Model.Params().All() {
			got = append(got, p.Grad...)
		}
		if want == nil {
			want = got
		}
		// Twelve sequences are summed in another order.
		for i := range got {
			if !(math.Abs(float64(got[i]-want[i])) <= 1e-6) {
				t.Fatalf("%d passes: gradient %d is %g, of one pass %g", passes, i, got[i], want[i])
			}
		}
	}
}
