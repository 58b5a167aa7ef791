package train

import (
	"context"
	"math"
	"runtime/debug"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/model"
)

// TestUpdateAllocatesAlmostNothing allows an update almost no allocations once its memory has grown, because
// scratch memory and what carries work to other goroutines are used again. The row of the metrics
// remains. With a second goroutine, memory may be in use when another part needs it, and one more
// piece is allocated.
func TestUpdateAllocatesAlmostNothing(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	defer par.SetThreads(0)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools forget what the collector takes
	wide := func(mechanism string) Config {
		c := standardPreset(2, 128, 2, 160, 4, 1000)
		c.Model.Mechanism = mechanism
		if mechanism == "fastmax" {
			c.Model.Set = map[string]string{"window": "64"}
		}
		return c
	}
	linear := standardPreset(1, 128, 16, 768, 1, 1000) // the form that the heads' width asks for
	linear.Model.Set = map[string]string{"window": "64"}
	linear.Model.Conv, linear.Model.Positions, linear.Model.Bias = 4, model.Learned, true
	adapted := wide("softmax")
	adapted.Adapters = 4
	list := map[string]Config{"fastmax": wide("fastmax"), "linear form": linear, "softmax, adapters": adapted}
	if suite.IsLong() {
		list["softmax"], list["taylorshift"] = wide("softmax"), wide("taylorshift")
	}
	for name, c := range list {
		for threads, most := range []float64{1: 1, 2: 10} {
			if threads == 0 {
				continue
			}
			par.SetThreads(threads)
			trainer, err := New(c, littleText(t), "")
			if err != nil {
				t.Fatal(err)
			}
			update := func() {
				if err := trainer.runUpdate(context.Background(), Observer{}); err != nil {
					t.Fatal(err)
				}
			}
			update()
			update()
			n := math.Inf(1) // the least of some updates: lent memory may be out in any one
			for i := 0; i < 5 && n > most; i++ {
				n = min(n, testing.AllocsPerRun(1, update))
			}
			if n > most {
				t.Errorf("%s, %d threads: an update allocates %v times, want at most %v", name, threads, n, most)
			}
		}
	}
}
