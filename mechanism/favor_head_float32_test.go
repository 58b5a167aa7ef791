//go:build !float64

package mechanism

import (
	"errors"
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// Sums that are not finite are counted or an error, and no query counts as one without keys.
func TestPerformerOfProgramsSaysWhatIsNotFinite(t *testing.T) {
	for _, kernel := range []string{"softmax", "hyperbolic"} {
		m, err := New("performer", Options{Width: 4, Set: map[string]string{"form": "code", "kernel": kernel}})
		if err != nil {
			t.Fatal(err)
		}
		oc, _ := shape{b: 1, h: 1, hkv: 1, n: 3, m: 5, d: 4, dv: 2}.call(142)
		c := callIn(oc)
		c.K.Data[0], c.K.Data[1] = 3e38, 3e38
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
