package kernel

import (
	"testing"
	"time"
)

func TestFMAPeak(t *testing.T) {
	all := Tables[float32]()
	slow := FMAPeak("generic", 5*time.Millisecond)
	if slow < 1e6 || slow > 1e12 {
		t.Errorf("generic: %.3g operations a second", slow)
	}
	for _, k := range all[:len(all)-1] {
		// Eight or sixteen lanes at a time; half of that allows for noise.
		if fast := FMAPeak(k.Name, 5*time.Millisecond); fast < 4*slow || fast > 1e13 {
			t.Errorf("%s: %.3g operations a second, generic %.3g", k.Name, fast, slow)
		}
	}
}
