package mechanism

import (
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
)

func topKSubjects() (list []subject) {
	for _, k := range []int{1, 4, 50} {
		set, scale := map[string]string{"topk": strconv.Itoa(k)}, 0.0
		if k == 4 {
			set["scale"], scale = "2", 2
		}
		list = append(list, subject{label: "exact-topk topk=" + set["topk"], name: "exact-topk", o: Options{Set: set}, average: true,
			whole: func(numbers) oracle.HeadMatrix { return oracle.ExactTopK(k, scale) }})
	}
	return list
}

// With as many keys as there are it is softmax.
func TestTopKOfAllIsSoftmax(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 40, m: 40, d: 4, dv: 3, causal: true}.call(141)
	exact, err := New[float64]("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New[float64]("exact-topk", Options{Set: map[string]string{"topk": "40"}})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn[float64](oc)
	got, want := both(t, m, c, do), both(t, exact, c, do)
	for _, x := range []struct{ got, want []float64 }{{got.o.Data, want.o.Data}, {got.g.DQ.Data, want.g.DQ.Data}, {got.g.DK.Data, want.g.DK.Data}, {got.g.DV.Data, want.g.DV.Data}} {
		if e := check.ErrorRatio(x.got, x.want, 1e-13); e > 1 {
			t.Errorf("it is not softmax, by %.3g", 1e-13*e)
		}
	}
}

func TestTopKDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "exact-topk", nil)
}
