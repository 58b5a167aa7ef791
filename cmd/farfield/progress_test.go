package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/train"
)

func TestSmallLossesAreShown(t *testing.T) {
	t.Parallel()
	for loss, want := range map[float64]string{0: "0.000", 1.23456: "1.235", 0.0005: "0.001", 0.0004999: "0.0005", 0.00002: "2e-05"} {
		var out bytes.Buffer
		progress.NewTraining(&env.Env{Stderr: &out}, 0, 1).Observer().Step(train.Step{Step: 1, Loss: loss})
		if text := "step 1 of 1  loss " + want + "  "; !strings.HasPrefix(out.String(), text) {
			t.Errorf("%v: %q, want %q", loss, out.String(), text)
		}
	}
}
