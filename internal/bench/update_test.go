package bench

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/model"
)

// An update has the gradient of its whole batch, in however many passes it is made.
func TestPassesMakeOneUpdate(t *testing.T) {
	c := model.Config{
		Kind: model.Encoder, Vocab: 11, Outputs: 3, Pool: model.PoolMean, Parts: 2, HeadHidden: 8, Layers: 1, Heads: 2, Width: 8,
		Context: 10, Positions: model.Learned, Bias: true, Mechanism: "fastmax",
	}
	var want []float32
	for _, passes := range []int{1, 2, 6} {
		u, err := NewUpdate(c, 12/passes, passes)
		if err != nil {
			t.Fatal(err)
		}
		if err := u.Run(); err != nil {
			t.Fatal(err)
		}
		if b := &u.Batch; b.B != 12/passes || b.N != c.Context || len(b.Tokens) != b.B*b.N {
			t.Errorf("%d passes are of %d sequences of %d tokens, %d in all", passes, b.B, b.N, len(b.Tokens))
		}
		var got []float32
		for _, p := range u.Model.Params().All() {
			got = append(got, p.Grad...)
		}
		if passes == 1 {
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
