package headtask

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// Rows of mean 0 have one feature channel less. Rotated and mapped rows have all
// channels.
func TestRotatedRowsKeepAllChannels(t *testing.T) {
	rope := attention.NewRope(4, 100, 0, 8)
	for _, c := range []struct {
		norm attention.Norm
		d    int
		rope *attention.Rope
		fm   attention.FeatureMap
		want int
	}{
		{attention.Standard, 4, nil, nil, 3}, {attention.Bounded, 4, nil, nil, 3}, {attention.Standard, 4, rope, nil, 4}, {attention.Standard, 1, nil, nil, 1},
		{attention.Standard, 4, nil, widening{}, 8}, {attention.Unit, 4, nil, nil, 4}, {attention.NoNorm, 4, nil, nil, 4},
	} {
		s := &Spec{Spec: attention.Spec{Norm: c.norm, Map: c.fm, Coef: []float64{1, 1, 0.5}}}
		u := &Task{Geometry: Geometry{Spec: s, D: c.d, PreparedWidth: s.Width(c.d), Rope: c.rope}}
		if got := u.FeatureWidth(); got != c.want {
			t.Errorf("norm %d, D = %d, rope %t, map %t: %d, want %d", c.norm, c.d, c.rope != nil, c.fm != nil, got, c.want)
		}
	}
}

// widening is a feature map of twice the width.
type widening struct{}

func (widening) Dim(d int) int { return 2 * d }

func (widening) Map(dst, x []float) {}

func (widening) Grad(dx, dy, x []float) {}
