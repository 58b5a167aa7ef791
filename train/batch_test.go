package train

import (
	"math"
	"reflect"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// A batch is as long as its longest sequence; the others are padded, and nothing is
// asked where they are.
func TestBatchIsPaddedToItsLongestSequence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		spec    task.Spec
		samples []task.Sample
		want    model.Batch
	}{
		{"class", task.Spec{Kind: task.Class, Vocab: 9, Parts: 1}, []task.Sample{{Tokens: []int32{1, 2, 3}, Class: 2}, {Tokens: []int32{4}, Class: 1}},
			model.Batch{B: 2, N: 3, Tokens: []int32{1, 2, 3, 4, 0, 0}, Lens: []int64{3, 1}, Targets: []int32{2, 1}}},
		{"pair", task.Spec{Kind: task.Class, Vocab: 9, Parts: 2}, []task.Sample{{Tokens: []int32{1, 2, 3}, Cut: 1, Class: 1}},
			model.Batch{B: 2, N: 2, Tokens: []int32{1, 0, 2, 3}, Lens: []int64{1, 2}, Targets: []int32{1}}},
		{"labels", task.Spec{Kind: task.Labels, Vocab: 9, Parts: 1}, []task.Sample{{Tokens: []int32{1}, Labels: []int32{5}}, {Tokens: []int32{2, 3}, Labels: []int32{6, 7}}},
			model.Batch{B: 2, N: 2, Tokens: []int32{1, 0, 2, 3}, Lens: []int64{1, 2}, Targets: []int32{5, -1, 6, 7}}},
		{"numbers", task.Spec{Kind: task.Regression, Channels: 2, Outputs: 1, Parts: 1}, []task.Sample{{Values: []float32{1, 2, 3, 4}, Targets: []float32{8}}, {Values: []float32{5, 6, 7, 8}, Targets: []float32{9}}},
			model.Batch{B: 2, N: 2, Values: []float32{1, 2, 3, 4, 5, 6, 7, 8}, Numbers: []float32{8, 9}}},
	} {
		got := PackBatch(c.spec, c.samples...)
		if !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, *got, c.want)
		}
	}
	if got := PackBatch(task.Spec{Kind: task.Class, Vocab: 9, Parts: 1}); got.B != 0 || got.N != 0 {
		t.Errorf("no samples are %+v", got)
	}
	levels := task.Spec{Kind: task.Level, Vocab: 9, Outputs: 1, Parts: 1}
	got := PackBatch(levels, task.Sample{Tokens: []int32{1, 2}, Targets: []float32{3, 4}}, task.Sample{Tokens: []int32{5}, Targets: []float32{6}}).Numbers
	if len(got) != 4 || got[0] != 3 || got[1] != 4 || got[2] != 6 || !math.IsNaN(float64(got[3])) {
		t.Errorf("levels are %v, want 3, 4, 6 and none", got)
	}
}
