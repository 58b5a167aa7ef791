package reproduce

import (
	"math"
	"os"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
)

// The table has a row for each sample, and is read as it was written.
func TestSignalIsReadAsWritten(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var x signalData
	src, err := x.make(20000)
	if err != nil {
		t.Fatal(err)
	}
	spec := src.Spec()
	if spec.Count != [3]int{16000 - signalWindow - signalHorizon + 1, 2000 - signalHorizon + 1, 2000 - signalHorizon + 1} || x.read.Samples != 20000 || x.read.Bytes < 6*20000 {
		t.Errorf("%v, %+v", spec.Count, x.read)
	}
	var s task.Sample
	if err := src.Sample(&s, task.Train, 0); err != nil {
		t.Fatal(err)
	}
	phase := 0.0
	for i, v := range s.Values[:20] {
		phase += 0.05 * (1 + 0.5*math.Sin(float64(i)/50000))
		if d := math.Abs(float64(v) - math.Sin(phase)); d > 0.0502 {
			t.Errorf("sample %d is %g, off by %g", i, v, d)
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}
