package train

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
)

// weights returns a copy of all numbers of the model.
func weights(t *Trainer) (list []float32) {
	for _, p := range modelTensors(t.model) {
		list = append(list, p.Data...)
	}
	return list
}

// weight returns the weight whose name ends with suffix.
func weight(t *testing.T, trainer *Trainer, suffix string) []float32 {
	t.Helper()
	for _, p := range trainer.model.Params().All() {
		if strings.HasSuffix(p.Name, suffix) {
			return p.Data
		}
	}
	t.Fatalf("no weight %s", suffix)
	return nil
}

// Gradients of a layer grow with its inputs beyond float32 while its outputs, and with
// them the loss, are 0.
func TestInfiniteGradientEndsTheRun(t *testing.T) {
	t.Parallel()
	for gain := float32(1); ; gain *= 2 {
		if math.IsInf(float64(gain), 0) {
			t.Fatal("no gain makes a gradient infinite")
		}
		trainer, err := New(little("softmax"), littleText(t), "")
		if err != nil {
			t.Fatal(err)
		}
		clear(weight(t, trainer, "mlp.up_proj.weight"))
		for _, x := range [][]float32{weight(t, trainer, "mlp_norm.weight"), weight(t, trainer, "mlp.down_proj.weight")} {
			for i := range x {
				x[i] *= gain
			}
		}
		before := weights(trainer)
		err = trainer.runUpdate(context.Background(), Observer{})
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrDiverged) || !strings.Contains(err.Error(), "the norm of the gradient +Inf") {
			t.Errorf("gain %v: error is %v", gain, err)
		}
		if trainer.StepsDone() != 0 || !slices.Equal(weights(trainer), before) {
			t.Error("the weights have changed")
		}
		return
	}
}

// A checkpoint of an interrupted update has the features of the last whole one.
func TestInterruptedUpdateKeepsTheFeatures(t *testing.T) {
	t.Parallel()
	c := little("performer")
	c.Model.Set = map[string]string{"redraw": "1"}
	trainer, err := New(c, littleText(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.runUpdate(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	before := weights(trainer)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := trainer.runUpdate(ctx, Observer{}); !errors.Is(err, context.Canceled) || !slices.Equal(weights(trainer), before) {
		t.Errorf("the features have changed, %v", err)
	}
}

// silent asks nothing of a sample.
type silent struct{ *made }

func (s silent) Sample(x *task.Sample, split task.Split, i int) error {
	err := s.made.Sample(x, split, i)
	for p := range x.Labels {
		x.Labels[p] = -1
	}
	return err
}

func TestUpdateWithoutTargetsEndsTheRun(t *testing.T) {
	t.Parallel()
	src := silent{kinds()["labels"]}
	trainer, err := New(littleTask(src, "softmax"), src, "")
	if err != nil {
		t.Fatal(err)
	}
	before := weights(trainer)
	err = trainer.runUpdate(context.Background(), Observer{})
	if err == nil || err.Error() != "step 1: nothing is asked of any sample" {
		t.Errorf("error is %v", err)
	}
	if trainer.StepsDone() != 0 || !slices.Equal(weights(trainer), before) {
		t.Error("the weights have changed")
	}
}

func TestOfEqualScoresLessLossIsBest(t *testing.T) {
	t.Parallel()
	src := kinds()["class"]
	trainer, err := New(littleTask(src, "softmax"), src, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		value, loss float64
		best        int
	}{{0.5, 2, 1}, {0.5, 3, 1}, {0.5, 2, 1}, {0.5, 1, 4}, {0.25, 0, 4}, {0.75, 9, 6}} {
		trainer.step = i + 1
		trainer.updateBest(Score{Metric: task.Accuracy, Value: c.value, Loss: c.loss})
		if trainer.BestStep() != c.best {
			t.Errorf("after score %v with loss %v at update %d the best is that of %d, want %d", c.value, c.loss, i+1, trainer.BestStep(), c.best)
		}
	}
}

// countdown is a context that ends when its error has been asked for n times.
type countdown struct {
	context.Context
	n *int
}

func (c countdown) Err() error {
	if *c.n--; *c.n < 0 {
		return context.Canceled
	}
	return nil
}

// The number of a sample is within an int, of 32 bits too.
func TestEndlessSamplesHaveNoNegativeNumber(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		trainer := &Trainer{orderKey: rng.New(seed).Fold(streamOrder)}
		trainer.collector.spec.Count[task.Train] = task.Endless
		if first := trainer.sampleIndex(0); first < 0 || trainer.sampleIndex(math.MaxInt>>1) < first {
			t.Errorf("seed %d: sample %d", seed, first)
		}
	}
}

// An update hears its context before every pass, and before every block in both
// directions. Until the gradient is complete, no interruption changes a weight.
func TestUpdateEndsBetweenBlocks(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	c.Model.Layers, c.Batch, c.FirstBatch, c.FirstContext, c.Accumulate = 2, 2, 0, 0, 2
	trainers := [2]*Trainer{}
	for i := range trainers {
		var err error
		if trainers[i], err = New(c, littleText(t), ""); err != nil {
			t.Fatal(err)
		}
	}
	before := weights(trainers[0])
	heard := 0
	for ; ; heard++ {
		n := heard
		err := trainers[0].runUpdate(countdown{context.Background(), &n}, Observer{})
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || trainers[0].StepsDone() != 0 || !slices.Equal(weights(trainers[0]), before) {
			t.Fatalf("interrupted at look %d: %v after %d updates, or other weights", heard, err, trainers[0].StepsDone())
		}
	}
	if want := 2 * (1 + 2*4); heard != want { // a layer is two blocks
		t.Errorf("an update of two passes through two layers hears its context %d times, want %d", heard, want)
	}
	if err := trainers[1].runUpdate(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(weights(trainers[0]), weights(trainers[1])) {
		t.Error("an update after interruptions has other bits")
	}
}

// After an error the next Train evaluates and saves what the last update requires.
func TestTrainGoesOnBehindAFailedLook(t *testing.T) {
	t.Parallel()
	src := kinds()["class"]
	c := littleTask(src, "softmax")
	c.EvalEvery, c.Steps = 2, 4
	alone, err := New(c, src, "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := alone.Train(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{2, 4} {
		lost := &failing{src, 1 << 30}
		trainer, err := New(c, lost, "")
		if err != nil {
			t.Fatal(err)
		}
		evals := 0
		o := Observer{Eval: func(Eval) { evals++ }, Step: func(s Step) {
			if s.Step == step {
				lost.left = 0
			}
		}}
		_, err = trainer.Train(context.Background(), o)
		if err == nil || trainer.StepsDone() != step {
			t.Fatalf("%d updates, error %v", trainer.StepsDone(), err)
		}
		lost.left = 1 << 30
		o.Step = nil
		got, err := trainer.Train(context.Background(), o)
		if err != nil || got != want || trainer.BestStep() != alone.BestStep() || evals != 3 {
			t.Errorf("after update %d: the score is %+v, %v, the best %d of %d evaluations, want %+v and %d of 3", step, got, err, trainer.BestStep(), evals, want, alone.BestStep())
		}
	}
}

// A sample that cannot be read ends a run after a checkpoint of the updates before.
func TestUnreadableSampleKeepsUpdates(t *testing.T) {
	t.Parallel()
	src := kinds()["class"]
	c := littleTask(src, "performer")
	c.Model.Set = map[string]string{"redraw": "1"}
	c.SaveEvery, c.EvalEvery = 0, 0
	want, _ := taskRun(t, c, src)
	lost, dir := &failing{src, 1 << 30}, filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, lost, dir)
	if err != nil {
		t.Fatal(err)
	}
	lost.left = 3*c.Batch + 1
	if _, err := trainer.Train(context.Background(), Observer{}); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("error is %v", err)
	}
	trainer.Close()
	if trainer, err = Resume(src, dir); err != nil || trainer.StepsDone() != 3 {
		t.Fatalf("the run goes on after update %d, %v", trainer.StepsDone(), err)
	}
	defer trainer.Close()
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, want)
}
