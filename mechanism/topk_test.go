package mechanism

import (
	"strconv"
	"testing"

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

func TestTopKDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "exact-topk", nil)
}

// With as many keys as there are it is softmax.
func TestTopKOfAllIsSoftmax(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 40, m: 40, d: 4, dv: 3, causal: true}.call(141)
	exact, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New("exact-topk", Options{Set: map[string]string{"topk": "40"}})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn(oc)
	got, want := both(t, m, c, in(do)), both(t, exact, c, in(do))
	holdSoftmax(t, "topk=40", got, want, oc, do)
}
