package exchange

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/flags"
)

// Updates of weights in fewer bits are refused before a model is read.
func TestUpdatesNeedFullPrecision(t *testing.T) {
	for _, p := range []string{"bf16", "int8"} {
		c := &Command{Field: "text", Updates: 30, Precision: flags.Precision{Precision: p}}
		if err := c.check(); err == nil || !strings.Contains(err.Error(), "--updates: 30, and --precision is "+p) {
			t.Errorf("%s: %v", p, err)
		}
	}
	c := &Command{Field: "text", Updates: 30, Precision: flags.Precision{Precision: "f32"}}
	if err := c.check(); err != nil {
		t.Error(err)
	}
}
