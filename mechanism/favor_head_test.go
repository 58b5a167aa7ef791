package mechanism

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// favorSubjects are the forms of performer that see whole heads.
func favorSubjects() (list []subject) {
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		s := subject{
			label: "performer form=code kernel=" + kernel, name: "performer",
			o:     Options{Width: 3, Set: map[string]string{"form": "code", "kernel": kernel, "features": "5"}},
			whole: func(p numbers) oracle.HeadMatrix { return favorBook(kernel, p).Weights },
		}
		if kernel == "softmax" {
			s.average, s.frozen = true, "the largest exponents count as constants, as in the program; TestPerformerGradientsHoldTheLargestExponents compares them so"
		}
		list = append(list, s)
	}
	return list
}

func favorBook(kernel string, p numbers) *oracle.HeadFavor {
	book := &oracle.HeadFavor{Favor: oracle.Favor{Kernel: kernel, W: rowsOf(p["projection"], 3), Root: fourthRoot(3), KeepFactor: true}}
	if kernel == "softmax" {
		book.FeatureEps = 1e-4
	} else {
		book.Eps = 1e-6
	}
	return book
}

func TestPerformerOfProgramsDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		doNotAllocate(t, "performer", map[string]string{"form": "code", "kernel": kernel})
	}
}

// Sums that are not finite are counted or an error, and no query counts as one without keys.
func TestPerformerOfProgramsSaysWhatIsNotFinite(t *testing.T) {
	huge := float(check.Pick(3e38, 1.7e308))
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		m, err := New("performer", Options{Width: 4, Set: map[string]string{"form": "code", "kernel": kernel}})
		if err != nil {
			t.Fatal(err)
		}
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 3, m: 5, d: 4, dv: 2}.call(142)
		c := callIn(oc)
		c.K.Data[0], c.K.Data[1] = huge, huge
		var keep attention.Saved
		if err := m.Forward(output(c), c, &keep); err != nil {
			t.Fatal(err)
		}
		if keep.NonFinite != 3 || keep.UnseenCount != 0 {
			t.Errorf("kernel=%s: %d rows are not finite, want 3; %d see no key, want 0", kernel, keep.NonFinite, keep.UnseenCount)
		}
		var odd *attention.NonFiniteError
		if err := m.Forward(output(c), c, nil); !errors.As(err, &odd) {
			t.Errorf("kernel=%s: error %v, want a NonFiniteError", kernel, err)
		}
	}
}

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
	limit := wholeLimits(nil, callIn(oc)).Output(1, 2)
	for form, want := range map[string]func(x float) bool{
		"paper": func(x float) bool { return math.Abs(float64(x)-1) <= limit },
		"code":  func(x float) bool { return x < 0.6 },
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
