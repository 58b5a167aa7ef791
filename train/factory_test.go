package train

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// A run with a mechanism of one's own ends, is continued and is read as any other.
func TestRunWithAMechanismOfOnesOwn(t *testing.T) {
	t.Parallel()
	factories := map[string]model.Factory{"own": model.NewFactory(func(o mechanism.Options) (attention.Mechanism, error) {
		return mechanism.New("linear", o)
	})}
	src := kinds()["class"]
	c := littleTask(src, "own")
	c.Model.Factories = factories
	want, score := taskRun(t, c, src)

	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{3, 20} { // before the first checkpoint that is due, and at one
		stopAt(t, trainer, step)
		if _, err := Resume(src, dir); err == nil || !strings.HasSuffix(err.Error(), "; one of your own needs its factory, which ResumeWith takes") {
			t.Errorf("Resume without the factory: %v", err)
		}
		if trainer, err = ResumeWith(src, dir, factories); err != nil {
			t.Fatal(err)
		}
	}
	defer trainer.Close()
	if got, err := trainer.Train(context.Background(), Observer{}); err != nil || got != score {
		t.Errorf("the score is %+v, %v; want %+v", got, err, score)
	}
	same(t, dir, want)

	if _, _, err := loadModel(dir); err == nil || !strings.Contains(err.Error(), `"own"`) {
		t.Errorf("loadModel without the factory: %v", err)
	}
	m, _, err := checkpoint.LoadModel(dir, nn.Float32, factories, ReadCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	if m.WeightSum() != trainer.Model().WeightSum() {
		t.Error("the model that was read is not the one that was scored")
	}
	for _, p := range []nn.Precision{nn.BFloat16, nn.Int8} {
		few, _, err := checkpoint.LoadModel(dir, p, factories, ReadCheckpoint)
		if err != nil {
			t.Fatal(err)
		}
		want, _, err := checkpoint.LoadModel(dir, nn.Float32, factories, ReadCheckpoint)
		if err == nil {
			err = want.Compress(p)
		}
		if err != nil || few.Precision() != p || few.WeightSum() != want.WeightSum() {
			t.Errorf("%v: what is read is not the model that is compressed: %v", p, err)
		}
	}
}
