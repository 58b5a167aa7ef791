package headtask

import (
	"math"
	"reflect"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/features"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Rows of mean 0 have one feature channel less. Rotated and mapped rows have all
// channels.
func TestRotatedRowsKeepAllChannels(t *testing.T) {
	rope := attention.NewRope[float32](4, 100, 0, 8)
	for _, c := range []struct {
		norm attention.Norm
		d    int
		rope *attention.Rope[float32]
		fm   attention.FeatureMap[float32]
		want int
	}{
		{attention.Standard, 4, nil, nil, 3}, {attention.Bounded, 4, nil, nil, 3}, {attention.Standard, 4, rope, nil, 4}, {attention.Standard, 1, nil, nil, 1},
		{attention.Standard, 4, nil, widening{}, 8}, {attention.Unit, 4, nil, nil, 4}, {attention.NoNorm, 4, nil, nil, 4},
	} {
		s := &Spec[float32]{Spec: attention.Spec[float32]{Norm: c.norm, Map: c.fm, Coef: []float64{1, 1, 0.5}}}
		u := &Task[float32]{Geometry: Geometry[float32]{Spec: s, D: c.d, PreparedWidth: s.Width(c.d), Rope: c.rope}}
		if got := u.FeatureWidth(); got != c.want {
			t.Errorf("norm %d, D = %d, rope %t, map %t: %d, want %d", c.norm, c.d, c.rope != nil, c.fm != nil, got, c.want)
		}
	}
}

// widening is a feature map of twice the width.
type widening struct{}

func (widening) Dim(d int) int            { return 2 * d }
func (widening) Map(dst, x []float32)     {}
func (widening) Grad(dx, dy, x []float32) {}

// Both forms compute the same outputs, and write nothing in the geometry of the task.
func TestFormsWriteNothingInTheGeometry(t *testing.T) {
	const n, d, dv, chunk = 50, 4, 3, 16
	s := &Spec[float64]{Spec: attention.Spec[float64]{Norm: attention.Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true}}
	for _, causal := range []bool{false, true} {
		rows := func(stream uint64, width int) tensor.Mat[float64] {
			m := tensor.Mat[float64]{Data: make([]float64, n*width), Rows: n, Cols: width, Stride: width}
			for i := range m.Data {
				m.Data[i] = rng.New(5).Fold(stream).Normal(uint64(i))
			}
			return m
		}
		q, k, v, mask := rows(1, d), rows(2, d), rows(3, dv), make([]bool, n)
		for j := range mask {
			mask[j] = j%5 != 3
		}
		run := func(form func(u *Task[float64])) []float64 {
			ar := arena.Acquire()
			defer ar.Release()
			o := rows(4, dv)
			u := &Task[float64]{
				Geometry: Geometry[float64]{
					Table: kernel.Active[float64](), Spec: s, Q: []tensor.Mat[float64]{q}, K: k, V: v, Scale: []float64{1}, Mask: mask,
					N: n, M: n, D: d, Dv: dv, PreparedWidth: d, Causal: causal, Chunk: chunk,
				},
				Output: Output[float64]{O: []tensor.Mat[float64]{o}, Den: [][]float64{make([]float64, n)}},
				Arena:  ar,
			}
			before := u.Geometry
			form(u)
			if !reflect.DeepEqual(before, u.Geometry) {
				t.Errorf("causal %t: the geometry is %+v, was %+v", causal, u.Geometry, before)
			}
			return o.Data
		}
		direct := run(func(u *Task[float64]) { u.DirectForward() })
		linear := run(func(u *Task[float64]) {
			u.LinearForward(features.NewMonomials(u.Table, s.Coef, true, u.FeatureWidth()))
		})
		for i, x := range direct {
			if math.Abs(x-linear[i]) > 1e-9 {
				t.Fatalf("causal %t: output %d is %v in the direct form, %v in the linear form", causal, i, x, linear[i])
			}
		}
	}
}
