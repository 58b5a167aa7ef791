//go:build float64

package mechanism

import (
	"strings"
	"testing"
)

// Why there is no causal form: which queries are computed depends on queries after
// them. Here the last query alone changes, which no softmax of another query
// sees, and others change between a softmax and a mean.
func TestInformerChoosesByLaterQueries(t *testing.T) {
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 40, m: 40, d: 4, dv: 3}.call(97)
	m, err := New("informer", Options{Set: map[string]string{"factor": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	c := callIn(oc)
	for i := range c.Q.Head(0, 0).Row(39) {
		c.Q.Head(0, 0).Row(39)[i] = 0 // its measure is 0
	}
	before := forward(t, m, c)
	for i := range c.Q.Head(0, 0).Row(39) {
		c.Q.Head(0, 0).Row(39)[i] = 100 // it is chosen, and another is not
	}
	after := forward(t, m, c)
	changed := 0
	for i := range 39 {
		if !same(before.o.Head(0, 0).Row(i), after.o.Head(0, 0).Row(i)) {
			changed++
		}
	}
	if changed != 1 {
		t.Errorf("the last query changed the outputs of %d others, want 1", changed)
	}
	c.Causal = true
	err = m.Forward(before.o, c, nil)
	if want := "causal: informer has no causal form: which queries are computed depends on all of them"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
