//go:build !float64

package headwise

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// What a row sees alone decides its bits: not the other queries, nor keys and
// values that it does not see, be they NaN.
func TestPairSoftmaxBits(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const n, d, w = 400, 20, 150
	q, k, v := tensor.NewMat(n, d), tensor.NewMat(n, d), tensor.NewMat(n, d)
	for i := range q.Data {
		q.Data[i], k.Data[i], v.Data[i] = float32(r.NormFloat64()), float32(r.NormFloat64()), float32(r.NormFloat64())
	}
	attend := func(i0, i1 int) tensor.Mat {
		ar := arena.Acquire()
		defer ar.Release()
		h := &Head{Q: q.Slice(i0, i1), K: k, V: v, Out: tensor.NewMat(i1-i0, d), Scratch: ar, Table: kernel.Active[float32]()}
		p := NewPattern()
		defer p.Release()
		lo, hi := p.AddPart(Range(0, i1-i0), Range(0, n))
		for a := range lo {
			lo[a], hi[a] = int32(i0+a-w), int32(i0+a+1)
		}
		new(PatternSoftmax).Forward(h, make([]float32, i1-i0), p)
		return h.Out
	}
	all := attend(0, n)
	for j := 300; j < n; j++ {
		k.Row(j)[3], v.Row(j)[1] = float32(math.NaN()), float32(math.Inf(1))
	}
	for i0 := 0; i0 < 300; i0 += 37 {
		some := attend(i0, n)
		for i := i0; i < 300; i++ {
			for e, x := range some.Row(i - i0) {
				if x != all.Row(i)[e] {
					t.Fatalf("query %d alone from %d on differs in channel %d: %v, %v", i, i0, e, x, all.Row(i)[e])
				}
			}
		}
	}
}
