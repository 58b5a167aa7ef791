package kernel

import (
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/cpu"
)

func TestFMAPeak(t *testing.T) {
	all := Tables[float32]()
	slow := FMAPeak("generic", 5*time.Millisecond)
	if slow < 1e6 || slow > 1e12 {
		t.Errorf("generic: %.3g operations a second", slow)
	}
	for _, k := range all[:len(all)-1] {
		// Four, eight or sixteen lanes at a time; half of eight allows for noise, and
		// of four.
		least := 4 * slow
		if k.Name == cpu.NEON {
			least = 2 * slow
		}
		if fast := FMAPeak(k.Name, 5*time.Millisecond); fast < least || fast > 1e13 {
			t.Errorf("%s: %.3g operations a second, generic %.3g", k.Name, fast, slow)
		}
	}
}
