package train

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCurvesHaveAPointForEveryColumn(t *testing.T) {
	y := SampleCurve(3, func(i int) (int, float64) { return []int{33, 34, 128}[i], []float64{1, 3, 5}[i] }, 128)
	if len(y) != curveWidth || y[0] != 2 || y[16] != 2 || y[62] != 2 || y[63] != 5 {
		t.Errorf("the curve is %v", y)
	}
}

func TestRunsAreNumbered(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"001", "002"} {
		path, err := freeRun(dir)
		if err != nil || path != filepath.Join(dir, want) {
			t.Fatalf("the free run is %s, %v", path, err)
		}
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}
