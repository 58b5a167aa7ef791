//go:build float64

package mechanism

import (
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
)

// Gradients of softmax treat the largest exponents as constants. Gradients of hyperbolic
// follow the longest rows, which matters if the weights of long rows are as small as eps.
func TestPerformerGradientsHoldTheLargestExponents(t *testing.T) {
	for _, s := range favorSubjects() {
		oc, do := s.fit(shape{b: 1, h: 1, hkv: 1, n: 70, m: 67, d: 3, dv: 2, mask: true}).call(140)
		size := 3.0 // most features of softmax are near 1e-4
		if s.frozen == "" {
			size = 1.6
		}
		for i := range oc.K.Data {
			oc.K.Data[i] *= size
		}
		m, book := build(t, s, 1)
		grads := gradients(t, m, book, oc, do)
		if s.frozen != "" {
			p := favorBook("softmax", book.numbers)
			var cq, ck []float64
			book.whole = func(numbers) oracle.HeadMatrix {
				return func(h *oracle.Head) [][]float64 {
					if cq == nil {
						cq, ck = p.Shifts(h)
					}
					return p.WeightsShiftedBy(h, cq, ck)
				}
			}
		}
		differences(t, book, oc, do, grads)
	}
}
