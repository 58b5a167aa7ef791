//go:build float64

package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// Causal calls are refused if exponents depend on the largest of all keys; kernel=relu is
// causal.
func TestPerformerOfProgramsRefusesCausal(t *testing.T) {
	x := tensor.NewHeads(1, 1, 3, 4)
	for _, kernel := range []string{"softmax", "hyperbolic", "relu"} {
		m, err := New("performer", Options{Width: 4, Set: map[string]string{"form": "code", "kernel": kernel}})
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if kernel != "relu" {
			want = "causal: performer has no causal form: form=code takes from the features of each key the largest of all keys, so that " +
				"later ones change what a query has seen before; form=paper has a causal form"
		}
		got := ""
		if err := m.Forward(tensor.NewHeads(1, 1, 3, 4), &attention.Call{Q: x, K: x, V: x, Causal: true}, nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("kernel=%s: error %q, want %q", kernel, got, want)
		}
	}
	_, err := New("performer", Options{Width: 4, Set: map[string]string{"form": "code", "eps": "1e-3"}})
	if want := "performer: setting form=code: it has feature_eps and eps of its own, which are not set"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// With features less the longest key fast-transformers' eps is larger than the
// weights: with values of 1 outputs are far below 1 at a width of 32, which form
// paper does not have.
func TestPerformerOfProgramsShrinksByItsEps(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 64, m: 64, d: 32, dv: 1}.call(141)
	for i := range oc.V.Data {
		oc.V.Data[i] = 1
	}
	for form, want := range map[string]func(x float64) bool{
		"paper": func(x float64) bool { return check.ErrorRatio([]float64{x}, []float64{1}, 1e-12) < 1 },
		"code":  func(x float64) bool { return x < 0.6 },
	} {
		m, err := New("performer", Options{Width: 32, Set: map[string]string{"form": form, "kernel": "hyperbolic"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range forward(t, m, callIn(oc)).o.Data {
			if !want(x) {
				t.Errorf("form=%s: weights of query %d sum to %v", form, i, x)
			}
		}
	}
}

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
		differences(t, book, oc, do, grads, math.MaxInt, nil)
	}
}
