package nn

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/mechanism"
)

func TestRetNetRefusesEpsBelowFloat32(t *testing.T) {
	row, _ := LookupMixer("retnet")
	for _, eps := range []string{"1e-46", "1e-39"} {
		_, err := NewMixer(row, 4, mechanism.Options{Heads: 2, Set: map[string]string{"eps": eps}}, new(WeightMaker))
		if err == nil || !strings.Contains(err.Error(), "setting eps="+eps) {
			t.Errorf("error is %v", err)
		}
	}
}
