//go:build float64

package mechanism

import (
	"fmt"
	"strings"
	"testing"
)

// All layers of a model have the same polynomial: its sign is found once.
func TestSignOfAPolynomialIsFoundOnce(t *testing.T) {
	list := make([]string, 30)
	for l := range list {
		list[l] = fmt.Sprintf("%d/1099511627776", 1000003+7919*l*l)
	}
	build := func(coef string) {
		if _, err := New("polynomial", Options{Set: map[string]string{"coef": coef}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1, func() { build(strings.Join(list, ",")) }); n > 5000 {
		t.Errorf("%v allocations for a polynomial whose sign is known", n)
	}
	for i := range 2 * maxCachedSigns {
		build(fmt.Sprintf("%d,1", i+2))
	}
	knownSigns.mu.Lock()
	defer knownSigns.mu.Unlock()
	if n := len(knownSigns.signs); n > maxCachedSigns {
		t.Errorf("the signs of %d polynomials are kept", n)
	}
}
