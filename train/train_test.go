package train

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

func TestMain(m *testing.M) {
	suite.KeepFilesInMemory()
	suite.CollectRarely()
	m.Run()
}

// little is a run of a fraction of a second.
func little(mechanism string) Config {
	c := standardPreset(1, 12, 2, 15, 3, 30)
	c.Model.Mechanism = mechanism
	c.FirstContext, c.FirstBatch, c.EvalEvery, c.EvalSamples, c.SaveEvery = 4, 9, 7, 4, 10
	return c
}

func littleText(t testing.TB) *task.Text {
	t.Helper()
	text, err := task.NewText(task.InventText(1, 3000), token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// run trains to the end in a new folder.
func run(t *testing.T, c Config) (dir string, score Score) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	score, err = trainer.Train(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	return dir, score
}

// resume trains the run in dir to the end.
func resume(t *testing.T, dir string) Score {
	t.Helper()
	trainer, err := Resume(littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	score, err := trainer.Train(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	return score
}

// rows reads the metrics of a run, without what depends on the time.
func rows(t *testing.T, dir string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, metricsFile))
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var row map[string]any
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatalf("line %q: %v", s.Text(), err)
		}
		delete(row, "tokens_per_s")
		delete(row, "elapsed_s")
		delete(row, "crc32c")
		list = append(list, row)
	}
	return list
}

// same compares two runs: every line of their metrics, every byte of their last
// model and optimiser.
func same(t *testing.T, got, want string) {
	t.Helper()
	a, b := rows(t, got), rows(t, want)
	if len(a) != len(b) {
		t.Fatalf("the metrics have %d lines, want %d", len(a), len(b))
	}
	for i := range a {
		if !reflect.DeepEqual(a[i], b[i]) {
			t.Fatalf("line %d of the metrics is %v, want %v", i+1, a[i], b[i])
		}
	}
	for _, name := range []string{model.WeightsFile, optimFile} {
		var text [2][]byte
		for i, dir := range []string{got, want} {
			path, err := latestCheckpoint(dir)
			if err != nil {
				t.Fatal(err)
			}
			if text[i], err = os.ReadFile(filepath.Join(path, name)); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(text[0], text[1]) {
			t.Errorf("%s differs", name)
		}
	}
}

// stopAt trains until after a step, as Ctrl-C in the middle of it would.
func stopAt(t *testing.T, trainer *Trainer, step int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err := trainer.Train(ctx, Observer{Step: func(s Step) {
		if s.Step == step {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("stopped with %v", err)
	}
	if trainer.StepsDone() != step {
		t.Fatalf("stopped after %d updates, want %d", trainer.StepsDone(), step)
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestResumedRunIsTheSame(t *testing.T) {
	t.Parallel()
	list := []string{"fastmax", "performer"}
	if suite.IsLong() {
		list = append(list, "softmax", "taylorshift")
	}
	for _, mechanism := range list {
		t.Run(mechanism, func(t *testing.T) {
			c := little(mechanism)
			if mechanism == "performer" { // some of the stops are where features are drawn anew
				c.Model.Set = map[string]string{"redraw": "7"}
			}
			if mechanism == "fastmax" {
				c.Model.AttentionDropout, c.Model.AttentionDropoutKind = 0.2, "standard"
			}
			want, score := run(t, c)
			dir := filepath.Join(t.TempDir(), "run")
			trainer, err := New(c, littleText(t), dir)
			if err != nil {
				t.Fatal(err)
			}
			// 14 is a step with an evaluation, 20 one with a checkpoint.
			for _, step := range []int{1, 14, 17, 20, 29} {
				stopAt(t, trainer, step)
				if trainer, err = Resume(littleText(t), dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := trainer.Close(); err != nil {
				t.Fatal(err)
			}
			if got := resume(t, dir); got != score {
				t.Errorf("the score is %+v, want %+v", got, score)
			}
			same(t, dir, want)
		})
	}
}

// Features are drawn anew after as many updates as asked for, and the checkpoint
// has those that the last update was made with.
func TestFeaturesAreDrawnAnew(t *testing.T) {
	t.Parallel()
	c := little("performer")
	c.Steps, c.SaveEvery = 15, 15
	saved := func(redraw string) []float32 {
		c.Model.Set = map[string]string{"redraw": redraw}
		dir, _ := run(t, c)
		m, _, err := loadModel(dir)
		if err != nil {
			t.Fatal(err)
		}
		return m.Constants().All()[0].Data
	}
	first, again, twice, later := saved("0"), saved("7"), saved("14"), saved("15")
	if slices.Equal(first, again) || !slices.Equal(first, later) {
		t.Error("features of the checkpoint are not those of the last update")
	}
	if !slices.Equal(again, twice) {
		t.Error("what is drawn after 14 updates depends on what was drawn before")
	}
}

func TestFinishedRunResumes(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	want, score := run(t, c)
	dir, _ := run(t, c)
	if got := resume(t, dir); got != score {
		t.Errorf("the score is %+v, want %+v", got, score)
	}
	same(t, dir, want)
}

func TestRecordedConfigRepeatsTheRun(t *testing.T) {
	t.Parallel()
	want, _ := run(t, little("taylorshift"))
	c, err := RunConfig(want)
	if err != nil {
		t.Fatal(err)
	}
	if c.Model.Set["tau"] != "sqrt(D)" || c.Model.Order != 2 || c.Model.Vocab != 256 {
		t.Errorf("the recorded model is %+v", c.Model)
	}
	dir, _ := run(t, c)
	same(t, dir, want)
}

func TestMetricsHaveEveryStepOnce(t *testing.T) {
	t.Parallel()
	dir, score := run(t, little("softmax"))
	var steps, evals []int
	for _, row := range rows(t, dir) {
		step := int(row["step"].(float64))
		if row["eval"] != nil {
			evals = append(evals, step)
		} else {
			steps = append(steps, step)
		}
	}
	for i, s := range steps {
		if s != i+1 {
			t.Fatalf("the steps are %v", steps)
		}
	}
	if len(steps) != 30 || !slices.Equal(evals, []int{7, 14, 21, 28, 30}) {
		t.Errorf("%d steps, evaluations at %v", len(steps), evals)
	}
	if n := littleText(t).Tokens(task.Valid).Len(); score.Tokens != int64(n-1) {
		t.Errorf("the whole evaluation has %d tokens, want %d", score.Tokens, n-1)
	}
}

func TestTrainingLearns(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	c.Steps, c.Rate = 200, 1e-2
	_, score := run(t, c)
	text := littleText(t)
	if alone := task.NewNgram(text.Tokens(task.Train).All(), 256).Loss(text.Tokens(task.Valid).All())[0]; score.Loss >= alone {
		t.Errorf("the loss is %.3f, that of single bytes %.3f", score.Loss, alone)
	}
}

func TestDivergenceIsAnError(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	c.Rate, c.MinRate, c.Clip, c.WarmUp, c.Decay = 1e6, 1e6, 0, 0, 1e6
	trainer, err := New(c, littleText(t), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trainer.Train(context.Background(), Observer{}); !errors.Is(err, ErrDiverged) {
		t.Errorf("error is %v", err)
	}
}

func TestNothingIsKeptWithoutAFolder(t *testing.T) {
	t.Parallel()
	trainer, err := New(little("softmax"), littleText(t), "")
	if err != nil {
		t.Fatal(err)
	}
	score, err := trainer.Train(context.Background(), Observer{Save: func(string) { t.Error("saved") }})
	if err != nil {
		t.Fatal(err)
	}
	if _, want := run(t, little("softmax")); score != want {
		t.Errorf("the score is %+v, with a folder %+v", score, want)
	}
	if err := trainer.Close(); err != nil {
		t.Error(err)
	}
}

func TestClosedTrainerLeavesItsFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(little("softmax"), littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	stopAt(t, trainer, 1)
	if _, err := trainer.Train(context.Background(), Observer{}); err == nil || err.Error() != dir+": the trainer is closed" {
		t.Errorf("error is %v", err)
	}
}

func TestEvaluatePredictsEveryTokenOnce(t *testing.T) {
	t.Parallel()
	c := little("softmax").Model
	vocab, err := token.NewCharVocabulary([]byte("abcdefghié€"))
	if err != nil {
		t.Fatal(err)
	}
	c.Vocab = vocab.Size()
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	key := rng.New(2)
	tokens := make([]int32, 101) // 100 to predict: six windows of 15 and one of 10
	for i := range tokens {
		tokens[i] = int32(key.Intn(uint64(i), c.Vocab))
	}
	// Each window by itself.
	loss := func(window int) (sum float64, n int) {
		at := window * c.Context
		n = min(c.Context, len(tokens)-1-at)
		losses := make([]float64, n)
		if err := m.Losses(t.Context(), &model.Batch{B: 1, N: n, Tokens: tokens[at:][:n], Targets: tokens[at+1:][:n]}, losses); err != nil {
			t.Fatal(err)
		}
		for _, l := range losses {
			sum += l
		}
		return sum, n
	}
	src := tokensOf(t, vocab, tokens).WithWindow(c.Context)
	for _, tc := range []struct {
		limit   int
		windows []int
	}{
		{0, []int{0, 1, 2, 3, 4, 5, 6}},
		{70, []int{0, 1, 2, 3, 4, 5, 6}},
		{1, []int{0}},
		{3, []int{0, 2, 4}},
	} {
		score, detail, err := Evaluate(context.Background(), m, src, task.Valid, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		var sum float64
		var count int
		var size int64
		for _, w := range tc.windows {
			s, n := loss(w)
			sum, count = sum+s, count+n
			size += vocab.CountBytes(tokens[w*c.Context+1:][:n])
		}
		if score.Tokens != int64(count) || score.Bytes != size || score.Samples != int64(len(tc.windows)) {
			t.Errorf("limit %d: %+v, want %d of %d", tc.limit, score, count, size)
		}
		// Sums of a hundred numbers in another order.
		if want := sum / float64(count); !near(score.Loss, want, 1e-14) || score.Value != score.Loss || !near(score.Bits, want/0.6931471805599453*float64(count)/float64(size), 1e-14) {
			t.Errorf("limit %d: %+v, want loss %v", tc.limit, score, want)
		}
		var all Score
		for i, b := range detail.Positions {
			if b.First != 1<<i-1 || b.Last != min(1<<(i+1)-2, 14) {
				t.Errorf("bucket %d is %+v", i, b)
			}
			all.Tokens += b.Tokens
			all.Loss += b.Loss * float64(b.Tokens)
		}
		if all.Tokens != score.Tokens || !near(all.Loss/float64(all.Tokens), score.Loss, 1e-14) {
			t.Errorf("limit %d: buckets sum to %+v, the score is %+v", tc.limit, all, score)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Evaluate(ended, m, src, task.Valid, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
	if _, _, err := Evaluate(context.Background(), m, src, task.Test, 0); err == nil {
		t.Error("a split without samples was evaluated")
	}
	if _, _, err := Evaluate(context.Background(), m, littleText(t).WithWindow(15), task.Valid, 0); err == nil {
		t.Error("a vocabulary of another size was taken")
	}
	if _, _, err := Evaluate(context.Background(), m, ignored{src}, task.Valid, 2); err == nil || !strings.Contains(err.Error(), "valid has 2 samples, and all their targets are ignored") {
		t.Errorf("without a target: %v", err)
	}
}

// ignored is a task whose targets are all ignored.
type ignored struct{ task.Source }

func (s ignored) Sample(x *task.Sample, split task.Split, i int) error {
	err := s.Source.Sample(x, split, i)
	for k := range x.Labels {
		x.Labels[k] = -1
	}
	return err
}

// tokensOf returns a text of tokens, with all of them to be judged by.
func tokensOf(t *testing.T, vocab *token.Vocabulary, tokens []int32) *task.Text {
	t.Helper()
	b, err := vocab.Decode(nil, tokens...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := task.NewText(&task.Corpus{Name: "test", Text: b}, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return text.ValidationOnly()
}

func near(x, y, relative float64) bool {
	return x-y <= relative*y && y-x <= relative*y
}
