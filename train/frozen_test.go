package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/safetensors"
	"github.com/farfield-ml/farfield/internal/task"
)

// frozenTexts returns the configuration and the source of labelled texts of three classes for a
// frozen published model.
func frozenTexts(t *testing.T) (Config, task.Source) {
	t.Helper()
	words := []string{"the cat sat", "dog on mat", "a the a"}
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 150 {
		fmt.Fprintf(&rows, "%s %s\tclass%d\n", words[i%3], words[i/3%3][:2+i%5], i%3)
	}
	data := filepath.Join(t.TempDir(), "t.tsv")
	if err := os.WriteFile(data, []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	c := standardPreset(1, 12, 2, 15, 3, 30)
	c.SetTask("file")
	c.setTaskSettings("data", data)
	c, err := c.StartFrom(filepath.Join("..", "pretrained", "testdata", "tiny"))
	if err == nil {
		c.setTaskSettings("length", "8")
		err = c.FreezeHead()
	}
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

// The body of a frozen model stays, and its head is the regression of all samples but the judged ones:
// the gradient of their loss with the penalty is 0.
func TestFrozenModelHasAFittedHead(t *testing.T) {
	t.Parallel()
	c, src := frozenTexts(t)
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	var looks []Eval
	score, err := trainer.Train(context.Background(), Observer{Eval: func(v Eval) { looks = append(looks, v) }})
	if err != nil {
		t.Fatal(err)
	}
	start, err := published.Open(c.Init)
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, p := range start.Model().Params().All() {
		if q, err := trainer.Model().Params().Get(p.Name); err == nil && !strings.HasPrefix(p.Name, "head") {
			copied++
			if !slices.Equal(p.Data, q.Data) {
				t.Errorf("%s is another", p.Name)
			}
		}
	}
	if copied < 20 {
		t.Errorf("%d weights are compared", copied)
	}
	spec, fit := src.Spec(), trainer.HeadFit()
	if n := spec.Count[task.Train] + spec.Count[task.Valid]; fit.Samples != n || fit.Held != spec.Count[task.Valid] || n+spec.Count[task.Test] != 150 {
		t.Errorf("fitted to %d samples, %d held out, of %v", fit.Samples, fit.Held, spec.Count)
	}
	if len(looks) != 2 || looks[0].Eval != EvalLook || looks[0].Split != "valid" || looks[0].Value != fit.Accuracy || looks[1].Split != "test" {
		t.Errorf("evaluations are %+v", looks)
	}
	if score.Value < 0.6 { // 1/3 by chance
		t.Errorf("accuracy %v", score.Value)
	}

	// The textbook gradient, at the weights of the model.
	const classes = 3
	weights, bias := trainer.trained.All()[0], trainer.trained.All()[1]
	width := weights.Shape[1]
	var vectors [][]float64
	var targets []int32
	for _, split := range []task.Split{task.Train, task.Valid} {
		var s task.Sample
		for i := range spec.Count[split] {
			if err := src.Sample(&s, split, i); err != nil {
				t.Fatal(err)
			}
			v, _, err := trainer.Model().Vectors(t.Context(), nil, PackBatch(src.Spec(), s))
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float64, width)
			for j, x := range v {
				row[j] = float64(x)
			}
			vectors, targets = append(vectors, row), append(targets, s.Class)
		}
	}
	n := float64(len(vectors))
	mean, square := make([]float64, width), 0.
	for _, v := range vectors {
		for j, x := range v {
			mean[j] += x / n
		}
	}
	for _, v := range vectors {
		for j, x := range v {
			square += (x - mean[j]) * (x - mean[j]) / n
		}
	}
	gradient, largest := make([]float64, classes*width), 0.
	for i := range gradient {
		gradient[i] = float64(weights.Data[i]) * square / fit.Strength / n // the penalty is of weights of scaled vectors
	}
	for i, v := range vectors {
		z, sum := [classes]float64{}, 0.
		for k := range z {
			z[k] = float64(bias.Data[k])
			for j, x := range v {
				z[k] += x * float64(weights.Data[k*width+j])
			}
			sum += math.Exp(z[k])
		}
		for k := range z {
			d := math.Exp(z[k]) / sum
			if k == int(targets[i]) {
				d--
			}
			for j, x := range v {
				gradient[k*width+j] += d * (x - mean[j]) / n
				largest = max(largest, math.Abs(d*(x-mean[j])))
			}
		}
	}
	for i, g := range gradient {
		if math.Abs(g) > 1e-4*largest {
			t.Errorf("the gradient of weight %d is %g, of single samples up to %g", i, g, largest)
		}
	}

	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Predict(t.Context(), []byte("dog on mat")); err != nil || p.Classes[r.Class] != "class1" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A frozen model goes back as a body whose pooled vectors a linear layer reads.
func TestFrozenModelIsGivenBackWithALinearLayer(t *testing.T) {
	t.Parallel()
	c, src := frozenTexts(t)
	dir, _ := taskRun(t, c, src)
	m, _, err := loadModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := published.WriteLike(out, PublishedFolder(dir), m); err != nil || !published.HasVectorHead(out) {
		t.Fatal(err)
	}
	body, err := published.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	dense, err := safetensors.Open(filepath.Join(out, "2_Dense", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer dense.Close()
	const classes = 3
	width := m.Config().Width
	weights, bias := make([]float32, classes*width), make([]float32, classes)
	if err := errors.Join(readTensor(dense, "linear.weight", []int{classes, width}, weights), readTensor(dense, "linear.bias", []int{classes}, bias)); err != nil {
		t.Fatal(err)
	}
	var s task.Sample
	if err := src.Sample(&s, task.Test, 0); err != nil {
		t.Fatal(err)
	}
	want := make([]float32, classes)
	if err := m.Logits(t.Context(), PackBatch(src.Spec(), s), want); err != nil {
		t.Fatal(err)
	}
	n := len(s.Tokens)
	y, err := body.Forward(context.Background(), &published.Input{B: 1, N: n, IDs: s.Tokens, Mask: slices.Repeat([]bool{true}, n)})
	if err != nil {
		t.Fatal(err)
	}
	last, err := y.LastHidden.Float32()
	if err != nil {
		t.Fatal(err)
	}
	for k, w := range want {
		got := float64(bias[k])
		for i, x := range last {
			got += float64(x) * float64(weights[k*width+i%width]) / float64(n)
		}
		if math.Abs(got-float64(w)) > 1e-5*(1+math.Abs(got)) {
			t.Errorf("logit %d is %v, want %v", k, got, w)
		}
	}

	// The vectors of the folder are the logits.
	const text = "dog on mat"
	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Predict(t.Context(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	vectors, err := body.Embed(t.Context(), []string{text})
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, x := range vectors[0] {
		sum += math.Exp(float64(x))
	}
	for k, x := range vectors[0] {
		if share := math.Exp(float64(x)) / sum; math.Abs(share-r.Probabilities[k]) > 1e-5 {
			t.Errorf("class %d has the probability %v of the vectors, want %v", k, share, r.Probabilities[k])
		}
	}
}

func TestFrozenRunResumesToTheSameBits(t *testing.T) {
	t.Parallel()
	c, src := frozenTexts(t)
	want, score := taskRun(t, c, src)
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := trainer.Train(ctx, Observer{}); !errors.Is(err, context.Canceled) || trainer.StepsDone() != 0 {
		t.Errorf("after %d updates: %v", trainer.StepsDone(), err)
	}
	trainer.Close()
	for range 2 { // unfinished, then finished
		if trainer, err = Resume(src, dir); err != nil {
			t.Fatal(err)
		}
		got, err := trainer.Train(context.Background(), Observer{})
		if err != nil || got != score {
			t.Errorf("the score is %+v, want %+v: %v", got, score, err)
		}
		trainer.Close()
	}
	for _, name := range []string{"model.safetensors"} {
		var text [2][]byte
		for i, run := range []string{dir, want} {
			path, err := latestCheckpoint(run)
			if err != nil {
				t.Fatal(err)
			}
			if text[i], err = os.ReadFile(filepath.Join(path, name)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(text[0], text[1]) {
			t.Errorf("%s differs", name)
		}
	}
	if err := LengthenRuns(src, 9, dir); err == nil || !strings.Contains(err.Error(), "steps: 9, but the run fits a linear head") {
		t.Errorf("error is %v", err)
	}
}

func TestFrozenModelRefusesOtherTraining(t *testing.T) {
	t.Parallel()
	c, src := frozenTexts(t)
	for _, bad := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Adapters = 2 }, "adapters is 2"},
		{func(c *Config) { c.Steps = 7 }, "steps is 7"},
		{func(c *Config) { c.Model.HeadHidden = 5 }, "head_hidden is 5"},
	} {
		d := c.clone()
		bad.change(&d)
		if _, _, err := d.PrepareTask(src); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), "freeze: ") || !strings.Contains(fault.InFile(err).Error(), bad.want) {
			t.Errorf("error is %v, want %s", err, bad.want)
		}
	}
	scratch := standardPreset(1, 12, 2, 15, 3, 30)
	if err := scratch.FreezeHead(); err == nil {
		t.Error("a model from scratch is frozen")
	}
	if c.Freeze = false; !c.SuitsFreeze(src) || scratch.SuitsFreeze(src) {
		t.Error("a frozen model is no default of a published encoder and 150 texts, or of a model from scratch")
	}
}

// A run of an earlier version draws its parts as it did.
func TestOldRunsKeepTheirParts(t *testing.T) {
	t.Parallel()
	c, src := frozenTexts(t)
	if !c.Stratified || src.Spec().Count != [3]int{120, 15, 15} {
		t.Errorf("stratified %t, parts %v", c.Stratified, src.Spec().Count)
	}
	c.Stratified = false
	old, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	a, err := task.Digest(old, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := task.Digest(src, nil); a == b || err != nil {
		t.Fatalf("draws have the same parts: %v", err)
	}
	dir, score := taskRun(t, c, old)
	text, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil || strings.Contains(string(text), "stratified") {
		t.Fatalf("%v: %s", err, text)
	}
	again, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	read, err := again.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckData(dir, read); err != nil {
		t.Error(err)
	}
	trainer, err := Resume(read, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if got, err := trainer.Train(context.Background(), Observer{}); err != nil || got != score {
		t.Errorf("%+v, want %+v: %v", got, score, err)
	}
}
