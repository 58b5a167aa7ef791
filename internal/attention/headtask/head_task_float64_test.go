//go:build float64

package headtask

import (
	"math"
	"reflect"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/features"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Both forms compute the same outputs, and write nothing in the geometry of the task.
func TestFormsWriteNothingInTheGeometry(t *testing.T) {
	const n, d, dv, chunk = 50, 4, 3, 16
	s := &Spec{Spec: attention.Spec{Norm: attention.Standard, Scale: 1, Coef: []float64{1, 1, 0.5}, Positive: true}}
	for _, causal := range []bool{false, true} {
		rows := func(stream uint64, width int) tensor.Mat {
			m := tensor.Mat{Data: make([]float64, n*width), Rows: n, Cols: width, Stride: width}
			for i := range m.Data {
				m.Data[i] = rng.New(5).Fold(stream).Normal(uint64(i))
			}
			return m
		}
		q, k, v, mask := rows(1, d), rows(2, d), rows(3, dv), make([]bool, n)
		for j := range mask {
			mask[j] = j%5 != 3
		}
		run := func(form func(u *Task)) []float64 {
			ar := arena.Acquire()
			defer ar.Release()
			o := rows(4, dv)
			u := &Task{
				Geometry: Geometry{
					Table: kernel.Active[float64](), Spec: s, Q: []tensor.Mat{q}, K: k, V: v, Scale: []float64{1}, Mask: mask,
					N: n, M: n, D: d, Dv: dv, PreparedWidth: d, Causal: causal, Chunk: chunk,
				},
				Output: Output{O: []tensor.Mat{o}, Den: [][]float64{make([]float64, n)}},
				Arena:  ar,
			}
			before := u.Geometry
			form(u)
			if !reflect.DeepEqual(before, u.Geometry) {
				t.Errorf("causal %t: the geometry is %+v, was %+v", causal, u.Geometry, before)
			}
			return o.Data
		}
		direct := run(func(u *Task) { u.DirectForward() })
		linear := run(func(u *Task) {
			u.LinearForward(features.NewMonomials(u.Table, s.Coef, true, u.FeatureWidth()))
		})
		for i, x := range direct {
			if math.Abs(x-linear[i]) > 1e-9 {
				t.Fatalf("causal %t: output %d is %v in the direct form, %v in the linear form", causal, i, x, linear[i])
			}
		}
	}
}
