package mechanism

import (
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
)

func topKSubjects() (list []subject) {
	for _, k := range []int{1, 4, 50} {
		set, scale := map[string]string{"topk": strconv.Itoa(k)}, 0.0
		if k == 4 {
			set["scale"], scale = "2", 2
		}
		list = append(list, subject{label: "exact-topk topk=" + set["topk"], name: "exact-topk", o: Options{Set: set}, average: true,
			whole: func(numbers) oracle.HeadMatrix { return oracle.ExactTopK(k, scale) }})
	}
	return list
}

func TestTopKDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "exact-topk", nil)
}
