package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/published"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// tunedTexts returns the folder of a run of bytes and a source of labelled texts by its
// tokens.
func tunedTexts(t *testing.T, adapters int, set ...string) (Config, task.Source) {
	t.Helper()
	start, _ := run(t, little("softmax"))
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 90 {
		fmt.Fprintf(&rows, "%s %s\t%s\n", strings.Repeat("x", i%11), []string{"good", "bad"}[i%2], []string{"pos", "neg"}[i%2])
	}
	data := filepath.Join(t.TempDir(), "t.tsv")
	if err := os.WriteFile(data, []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	c := standardPreset(1, 12, 2, 15, 3, 30)
	c.Lengthened = []int{4}
	c.SetTask("file")
	c.setTaskSettings(append(set, "data", data)...)
	c, err := c.StartFrom(start)
	if err != nil {
		t.Fatal(err)
	}
	c.SetAdapters(adapters)
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

// A run that starts from another has its weights, a new head, and settings from the data.
func TestRunStartsFromWeights(t *testing.T) {
	t.Parallel()
	c, src := tunedTexts(t, 0)
	c.Rate = 0
	trainer, err := New(c, src, "")
	if err != nil {
		t.Fatal(err)
	}
	got := trainer.Config()
	if got.Lengthened != nil {
		t.Errorf("the run is lengthened after %v", got.Lengthened)
	}
	if n := src.Spec().Count[task.Train]; got.Batch < 1 || got.Steps != tuneEpochs*((n+got.Batch-1)/got.Batch) || got.WarmUp != got.Steps/tuneWarmUp || got.Model.Context != src.Spec().Length {
		t.Errorf("%d samples: batch %d, %d steps, %d of warm-up, context %d", n, got.Batch, got.Steps, got.WarmUp, got.Model.Context)
	}
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	start, _, err := loadModel(c.Init)
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, p := range trainer.Model().Params().All() {
		if q, err := start.Params().Get(p.Name); err == nil && !strings.HasPrefix(p.Name, "head") {
			copied++
			if !slices.Equal(p.Data, q.Data) {
				t.Errorf("%s is another", p.Name)
			}
		}
	}
	if want := len(start.Params().All()); copied != want {
		t.Errorf("%d of %d weights are copied", copied, want)
	}
}

// Epochs become updates, also where gradients are accumulated.
func TestEpochsBecomeUpdates(t *testing.T) {
	t.Parallel()
	c, src := tunedTexts(t, 0)
	n := src.Spec().Count[task.Train]
	for _, x := range []struct{ epochs, accumulate int }{{1, 1}, {2, 1}, {2, 3}} {
		c.Epochs, c.Accumulate = x.epochs, x.accumulate
		got, _, err := c.PrepareTask(src)
		if err != nil {
			t.Fatal(err)
		}
		size := got.Batch * x.accumulate
		if want := x.epochs * ((n + size - 1) / size); got.Steps != want || got.Epochs != 0 || got.WarmUp != want/tuneWarmUp {
			t.Errorf("%d epochs of %d samples in updates of %d: %d steps, warm-up %d, %d epochs left", x.epochs, n, size, got.Steps, got.WarmUp, got.Epochs)
		}
	}
	c.Epochs = -1
	if _, _, err := c.PrepareTask(src); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), "epochs: is -1, needs 1 to ") {
		t.Errorf("error is %v", err)
	}
	preset, _ := LookupPreset("listops")
	grown := preset.Config
	grown.Epochs, grown.FirstContext = 1, 64
	list, err := grown.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := grown.PrepareTask(list); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), "epochs: is 1, but first_context is 64") {
		t.Errorf("samples grow: error is %v", err)
	}
}

// A tuned run stops, resumes, is scored and predicts without the model that it started from.
func TestTunedRunsResumeToTheSameBits(t *testing.T) {
	t.Parallel()
	for _, rank := range []int{0, 2} {
		c, src := tunedTexts(t, rank)
		want, score := taskRun(t, c, src)
		if err := os.Rename(c.Init, c.Init+"-gone"); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{want} {
			saved, err := RunConfig(dir)
			if err != nil {
				t.Fatal(err)
			}
			again, err := saved.OpenTask()
			if err != nil {
				t.Fatal(err)
			}
			m, _, err := loadModel(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, prepared, err := saved.PrepareTask(again)
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := Evaluate(context.Background(), m, prepared, task.Test, 0); err != nil || got != score {
				t.Errorf("rank %d: the score is %+v, %v, want %+v", rank, got, err, score)
			}
		}
		p, err := openPredictor(want)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Predict(t.Context(), []byte("xx good, and more bytes than the model has positions, so that it is cut")); err != nil || len(r.Probabilities) != 2 {
			t.Errorf("rank %d: %+v, %v", rank, r, err)
		}
		if err := os.Rename(c.Init+"-gone", c.Init); err != nil {
			t.Fatal(err)
		}
		dir, got := taskRun(t, c, src, 1, 4)
		if got != score {
			t.Errorf("rank %d: the score is %+v, want %+v", rank, got, score)
		}
		same(t, dir, want)
		if a, b := weightsOf(t, filepath.Join(dir, checkpointsFolder, bestName)), weightsOf(t, filepath.Join(want, checkpointsFolder, bestName)); !bytes.Equal(a, b) {
			t.Errorf("rank %d: the best weights differ", rank)
		}
	}
}

// Adapters leave everything but the matrices of layers and the head.
func TestAdaptersChangeMatricesAndHead(t *testing.T) {
	t.Parallel()
	c, src := tunedTexts(t, 2)
	c.Rate = 0.05
	trainer, err := New(c, src, "")
	if err != nil {
		t.Fatal(err)
	}
	before := map[string][]float32{}
	for _, p := range trainer.model.Params().All() {
		before[p.Name] = slices.Clone(p.Data)
	}
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, p := range trainer.model.Params().All() {
		adapted := strings.HasPrefix(p.Name, "head") || strings.Contains(p.Name, "layers.") && len(p.Shape) == 2 && p.Decay
		if adapted == slices.Equal(p.Data, before[p.Name]) {
			t.Errorf("%s: changed is %v, want %v", p.Name, !adapted, adapted)
		}
		if adapted {
			changed++
		}
	}
	if changed < 7 {
		t.Errorf("%d weights are adapted", changed)
	}
}

// adaptedModel returns a small model with adapters, all of whose numbers are drawn.
func adaptedModel(t *testing.T, rank int) (*model.Model, *adapters) {
	t.Helper()
	c := model.Config{Kind: model.Encoder, Vocab: 11, Outputs: 3, Pool: model.PoolMean, Layers: 1, Heads: 2, Width: 8, Context: 6, Positions: model.Learned, Mechanism: "softmax", Bias: true}
	m, err := model.New(c, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range m.Params().All() {
		for j := range p.Data {
			p.Data[j] += float32(0.2 * rng.New(2).Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	a, err := newAdapters(m, rank, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range a.list {
		for j := range d.upProj.Data {
			d.upProj.Data[j] = float32(0.3 * rng.New(4).Fold(uint64(i)).Normal(uint64(j)))
		}
	}
	a.apply()
	return m, a
}

// The gradients of A and B are the slopes of the loss.
func TestAdapterGradientsAreSlopes(t *testing.T) {
	t.Parallel()
	for _, rank := range []int{1, 3} {
		m, a := adaptedModel(t, rank)
		b := &model.Batch{B: 3, N: 6, Lens: []int64{6, 2, 5}, Targets: []int32{0, 2, 1}}
		for i := range b.B * b.N {
			b.Tokens = append(b.Tokens, int32(i*7%11))
		}
		loss := func() float64 {
			a.apply()
			l, err := m.Forward(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		loss()
		m.Params().ZeroGrad()
		if err := m.Backward(1); err != nil {
			t.Fatal(err)
		}
		a.setGradients()
		const h = 0x1p-6
		for _, p := range a.trained.All() {
			most := 0.
			for _, g := range p.Grad {
				most = max(most, math.Abs(float64(g)))
			}
			for j, g := range p.Grad {
				before := p.Data[j]
				p.Data[j] = before + h
				up := loss()
				p.Data[j] = before - h
				slope := (up - loss()) / (2 * h)
				p.Data[j] = before
				// Differences have an error of h² times the third derivative, and of the
				// rounding of float32 losses over h.
				if !(math.Abs(slope-float64(g)) <= 2e-3*most+2e-5) {
					t.Errorf("rank %d, %s[%d]: the gradient is %g, the slope %g", rank, p.Name, j, g, slope)
				}
			}
		}
	}
}

// The model holds W₀ + s·B·A.
func TestAdaptersAddTheirProduct(t *testing.T) {
	t.Parallel()
	_, a := adaptedModel(t, 2)
	for _, d := range a.list {
		in := d.weight.Shape[1]
		for i, got := range d.weight.Data {
			want, size := float64(d.base[i]), math.Abs(float64(d.base[i]))
			for j := range d.rank {
				x := adapterScale * float64(d.upProj.Data[i/in*d.rank+j]) * float64(d.downProj.Data[j*in+i%in])
				want, size = want+x, size+math.Abs(x)
			}
			if math.Abs(float64(got)-want) > 4*0x1p-24*size {
				t.Fatalf("%s[%d] is %g, want %g", d.weight.Name, i, got, want)
			}
		}
	}
}

// All weights have their own rate again after adapters are given up.
func TestAdaptersTakeTheirRateAlong(t *testing.T) {
	t.Parallel()
	c := Config{Rate: 1e-3}
	c.SetAdapters(8)
	if c.SetAdapters(4); c.Rate != 1e-3*adapterRate {
		t.Errorf("with adapters the rate is %g", c.Rate)
	}
	if c.SetAdapters(0); c.Rate != 1e-3 || c.Adapters != 0 {
		t.Errorf("without adapters the rate is %g, the rank %d", c.Rate, c.Adapters)
	}
}

func TestStartsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(c *Config){
		"layers.1.attn_norm.weight":      func(c *Config) { c.Model.Layers = 2 },
		"embed.weight: is [256 12], the": func(c *Config) { c.Model.Width = 16 },
		"adapters: rank 13, but":         func(c *Config) { c.SetAdapters(13) },
		"the model reads 300 tokens":     func(c *Config) { c.Model.Vocab = 300 },
		"no such":                        func(c *Config) { c.Init += "-none" },
	} {
		c, src := tunedTexts(t, 0)
		change(&c)
		if _, err := New(c, src, ""); err == nil || !strings.Contains(fault.InFile(err).Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
	if _, err := (Config{}).StartFrom(t.TempDir()); err == nil || !strings.Contains(err.Error(), "neither a run nor a checkpoint") {
		t.Errorf("an empty folder: %v", err)
	}
}

// A model may have more rows than its tokenizer tokens. A run keeps them.
func TestTextsTuneAModelOfMoreRowsThanTokens(t *testing.T) {
	t.Parallel()
	const rows = 264
	words, err := tokenizer.Train(t.Context(), nil, 256)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: rows, Layers: 1, Heads: 1, Width: 8, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax"}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	start, data := filepath.Join(t.TempDir(), "start"), filepath.Join(t.TempDir(), "text")
	if err := checkpoint.SaveModel(start, m, token.NewTokenizerVocabulary(words)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(data, task.InventText(1, 3000).Text, 0o666); err != nil {
		t.Fatal(err)
	}
	tuned := func(start string) (Config, task.Source) {
		c := little("softmax")
		c.setTaskSettings("data", data)
		c, err := c.StartFrom(start)
		if err != nil {
			t.Fatal(err)
		}
		c.Steps, c.Batch = 4, 2
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		return c, src
	}
	c, src := tuned(start)
	want, score := taskRun(t, c, src)
	dir, got := taskRun(t, c, src, 2)
	if got != score {
		t.Errorf("the score is %+v, want %+v", got, score)
	}
	same(t, dir, want)
	m, vocab, err := loadModel(dir)
	if err != nil || m.Config().Vocab != rows || vocab.Size() != 256 {
		t.Fatalf("%v, want %d rows", err, rows)
	}
	if _, src := tuned(dir); src.Spec().Vocab != rows {
		t.Errorf("the task has %d tokens, want %d", src.Spec().Vocab, rows)
	}
}

// Batches of similar lengths still visit every sample once an epoch.
func TestGroupedBatchesVisitEverySample(t *testing.T) {
	t.Parallel()
	c, src := tunedTexts(t, 0)
	n := src.Spec().Count[task.Train]
	for _, batch := range []int{1, 4, 7, n + 1} {
		g := lengthGroups{lengths: src.(task.LengthReporter), batch: batch}
		whole := n
		if n > batch {
			whole -= n % batch
		}
		spread := 0
		for epoch := range 2 {
			seen := map[int]bool{}
			var lengths []int
			for i := range whole {
				at := g.sampleAt(epoch*whole+i, n, rng.New(c.Seed))
				if seen[at] {
					t.Fatalf("batch %d: sample %d comes twice", batch, at)
				}
				seen[at] = true
				lengths = append(lengths, g.lengths.SampleLength(task.Train, at))
			}
			for part := range slices.Chunk(lengths, batch) {
				spread += slices.Max(part) - slices.Min(part)
			}
		}
		if batch == 4 && spread > 2*whole/2 {
			t.Errorf("lengths in a batch differ by %d in all", spread)
		}
		fresh := lengthGroups{lengths: g.lengths, batch: batch}
		if a, b := fresh.sampleAt(whole+whole/2, n, rng.New(c.Seed)), g.sampleAt(whole+whole/2, n, rng.New(c.Seed)); a != b {
			t.Errorf("batch %d: sample %d after a resume, was %d", batch, a, b)
		}
	}
}

// A run starts from a published folder and reads its texts as the ids of its tokenizer.
func TestRunStartsFromPublishedModel(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 60 {
		fmt.Fprintf(&rows, "%s\t%d\n", strings.Repeat("the cat ", 1+i%9), i%2)
	}
	data := filepath.Join(t.TempDir(), "t.tsv")
	if err := os.WriteFile(data, []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "pretrained", "testdata", "tiny")
	c := standardPreset(1, 12, 2, 15, 3, 30)
	c.SetTask("file")
	c.setTaskSettings("data", data)
	c, err := c.StartFrom(folder)
	if err != nil {
		t.Fatal(err)
	}
	c.setTaskSettings("length", "8")
	c.SetAdapters(1)
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	words, err := tokenizer.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	ids := words.AppendIDs(nil, strings.Repeat("the cat ", 9), false)
	var s task.Sample
	for i := range src.Spec().Count[task.Train] {
		if err := src.Sample(&s, task.Train, i); err != nil {
			t.Fatal(err)
		}
		if n := len(s.Tokens); n > 8 || s.Tokens[0] != ids[0] || s.Tokens[n-1] != ids[len(ids)-1] {
			t.Fatalf("sample %d is %v, special tokens are %d and %d", i, s.Tokens, ids[0], ids[len(ids)-1])
		}
	}
	if cut, all := src.(task.TruncationReporter).CountTruncated(); cut == 0 || cut >= all {
		t.Errorf("%d of %d texts are cut", cut, all)
	}
	want, score := taskRun(t, c, src)
	dir, got := taskRun(t, c, src, 2)
	if got != score {
		t.Errorf("the score is %+v, want %+v", got, score)
	}
	same(t, dir, want)
	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Predict(t.Context(), []byte(strings.Repeat("the cat ", 50))); err != nil || len(r.Probabilities) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	checkGivenBack(t, dir, words)
}

// A run cuts long texts where the published model does that it starts from, itself or through
// another run.
func TestRunsCutTheSideThatFilesName(t *testing.T) {
	t.Parallel()
	data, folder := filepath.Join(t.TempDir(), "t.tsv"), t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("..", "pretrained", "testdata", "tiny"))); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		data: "text\tlabel\n" + strings.Repeat("the cat sat on the mat\tyes\nthe cat sat on the mat\tno\n", 20),
		filepath.Join(folder, "tokenizer_config.json"): `{"truncation_side":"left"}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	words, err := tokenizer.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	want := words.AppendIDs(nil, "on the mat", false) // as package published cuts it
	start := func(from string) (Config, task.Source) {
		c := standardPreset(1, 12, 2, 15, 3, 30)
		c.SetTask("file")
		c.setTaskSettings("data", data)
		c, err := c.StartFrom(from)
		if err != nil {
			t.Fatal(err)
		}
		c.setTaskSettings("length", "5")
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		var s task.Sample
		if err := src.Sample(&s, task.Train, 0); err != nil || !slices.Equal(s.Tokens, want) {
			t.Errorf("tokens are %v, %v, want %v", s.Tokens, err, want)
		}
		return c, src
	}
	c, src := start(folder)
	dir, _ := taskRun(t, c, src)
	start(dir)
	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	var numbers [2]float64
	for i, text := range []string{"on the mat", "the cat sat on the mat"} {
		r, err := p.Predict(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		numbers[i] = r.Probabilities[0]
	}
	if numbers[0] != numbers[1] {
		t.Errorf("probabilities of a text and its end are %v", numbers)
	}
}

// TestRunsKeepTheTokensThatTheyLearnFrom starts from a folder that has only tokenizer.model.
func TestRunsKeepTheTokensThatTheyLearnFrom(t *testing.T) {
	t.Parallel()
	var pieces []byte
	for i, text := range []string{"<unk>", "<s>", "</s>", "ba", "▁", "a", "b", "▁b"} {
		kind := []byte{2, 3, 3, 4, 1, 1, 1, 1}[i]
		p := append([]byte{1<<3 | 2, byte(len(text))}, text...)
		p = append(p, 2<<3|5, 0, 0, 0x80, 0xc7-byte(i), 3<<3, kind) // scores rise
		pieces = append(append(pieces, 1<<3|2, byte(len(p))), p...)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 8, Width: 8, Heads: 2, Layers: 1, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax", Norm: model.RMSNorm, Activation: model.SwiGLU}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	dir, run := t.TempDir(), t.TempDir()
	if err := published.Write(dir, m, nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), pieces, 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := openPublished(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := saveTokens(run, s.tokens); err != nil {
		t.Fatal(err)
	}
	kept, err := loadTokens(run, 8)
	if err != nil {
		t.Fatal(err)
	}
	const text = "aba b"
	ids, want := kept.Vocabulary.Tokenizer().Encode(text).IDs, s.tokens.Vocabulary.Tokenizer().Encode(text).IDs
	if !slices.Equal(ids, want) || !slices.Contains(ids, 3) {
		t.Errorf("the run has the ids %v, learns from %v", ids, want)
	}
}

// A model outside of a run has its own tokenizer. Files two folders up are of something else.
func TestModelOutsideOfARunIsReadAlone(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "models", "notes")
	words, err := tokenizer.Train(t.Context(), nil, 256)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 256, Layers: 1, Heads: 1, Width: 8, Context: 16,
		Positions: model.Rotary, Mechanism: "softmax"}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	tokens := &task.Tokens{Vocabulary: token.NewTokenizerVocabulary(words), Size: 256}
	if err := errors.Join(checkpoint.SaveModel(dir, m, nil), saveTokens(dir, tokens), os.WriteFile(filepath.Join(root, configFile), []byte(`{"port": 8080}`), 0o666)); err != nil {
		t.Fatal(err)
	}
	if s, err := openStart(dir, nil); err != nil || s.tokens == nil {
		t.Errorf("tokens are %v, %v", s.tokens, err)
	}
	in := filepath.Join(root, checkpointsFolder, "notes")
	if err := os.CopyFS(in, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if !isAlone(dir) || isAlone(in) {
		t.Errorf("alone: %t outside of a run, %t in a folder of checkpoints", isAlone(dir), isAlone(in))
	}
	if _, err := openStart(in, nil); err == nil {
		t.Error("in a folder of checkpoints the files are not the run's")
	}
}

// checkGivenBack compares the logits of a run with the logits of its folder for other
// programs.
func checkGivenBack(t *testing.T, run string, words *tokenizer.Tokenizer) {
	t.Helper()
	m, _, err := loadModel(run)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if err := published.WriteLike(out, PublishedFolder(run), m); err != nil {
		t.Fatal(err)
	}
	p, err := published.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	ids := words.AppendIDs(nil, "the dog sat on", false)
	want := make([]float32, 2)
	if err := m.Logits(t.Context(), &model.Batch{B: 1, N: len(ids), Tokens: ids}, want); err != nil {
		t.Fatal(err)
	}
	mask := make([]bool, len(ids))
	for i := range mask {
		mask[i] = true
	}
	got, err := p.Forward(context.Background(), &published.Input{B: 1, N: len(ids), IDs: ids, Mask: mask})
	if err != nil {
		t.Fatal(err)
	}
	logits, err := got.Logits.Float32()
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if math.Abs(float64(logits[i]-want[i])) > 1e-5 {
			t.Errorf("logit %d is %v, want %v", i, logits[i], want[i])
		}
	}
	if p.Tokenizer() == nil || !slices.Equal(p.Tokenizer().AppendIDs(nil, "the dog sat on", false), ids) {
		t.Errorf("tokens differ: %v", p.TokenizerErr())
	}
}

// A run of labelled texts learns words from them, keeps them, and predicts and resumes with
// them, whatever its data is later.
func TestRunsOfTextsLearnAndKeepWords(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 90 {
		fmt.Fprintf(&rows, "%s %s\t%s\n", strings.Repeat("Words ", 1+i%11), []string{"GOOD", "bad"}[i%2], []string{"pos", "neg"}[i%2])
	}
	data := filepath.Join(t.TempDir(), "t.tsv")
	if err := os.WriteFile(data, []byte(rows.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	c := samplePreset("file", 4, 6, "vocabulary", "bpe=300", "data", data)
	c.Model.Width, c.Model.Heads, c.Model.Hidden, c.Model.Mechanism = 8, 2, 8, "softmax"
	c.EvalEvery, c.SaveEvery = 3, 3
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	want, score := taskRun(t, c, src)
	dir, got := taskRun(t, c, src, 1, 4)
	if got != score {
		t.Errorf("the score is %+v, want %+v", got, score)
	}
	same(t, dir, want)
	saved, err := RunConfig(want)
	if err != nil {
		t.Fatal(err)
	}
	if saved.tokens == nil || saved.tokens.Size <= 256 || saved.Model.Vocab != saved.tokens.Size {
		t.Errorf("tokens %+v, the model has %d", saved.tokens, saved.Model.Vocab)
	}
	if saved.TaskSet["length"] != fmt.Sprint(saved.Model.Context) {
		t.Errorf("length is %q, the context %d", saved.TaskSet["length"], saved.Model.Context)
	}
	p, err := openPredictor(want)
	if err != nil {
		t.Fatal(err)
	}
	var probabilities [2]float64
	for i, text := range []string{"words good", "WORDS Good"} { // equal in lower case
		r, err := p.Predict(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		probabilities[i] = r.Probabilities[0]
	}
	if probabilities[0] != probabilities[1] {
		t.Errorf("probabilities of two cases are %v", probabilities)
	}
	changed, lacking := copyRun(t, want), copyRun(t, want)
	edit(t, filepath.Join(changed, tokenizerFile), "{", "{ ")
	_, opened := openPredictor(changed)
	_, resumed := Resume(src, changed)
	for _, err := range []error{opened, resumed} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(changed, tokenizerFile)+": its SHA-256 is ") {
			t.Errorf("another tokenizer: error is %v", err)
		}
	}
	withoutCopies(t, changed)
	if _, err := openPredictor(changed); err != nil {
		t.Errorf("without a copy the error is %v", err)
	}
	if err := os.Remove(filepath.Join(lacking, tokenizerFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := openPredictor(lacking); err == nil || !strings.Contains(err.Error(), filepath.Join(lacking, tokenizerFile)+": is missing") {
		t.Errorf("without the tokenizer the error is %v", err)
	}
	for _, name := range []string{"bpe=300", "bpe=260"} {
		again, _ := RunConfig(want)
		if again.SetVocabulary(name); again.HasTokens() || again.TaskSet["length"] != "" {
			t.Errorf("%s: length %q of the tokens of the run stays", name, again.TaskSet["length"])
		}
		if src, err = again.OpenTask(); err == nil {
			again, _, err = again.PrepareTask(src)
		}
		if err != nil || again.TaskSet["length"] != saved.TaskSet["length"] || name == "bpe=260" && again.Model.Vocab != 260 {
			t.Errorf("%s: %d tokens, length %q, %v", name, again.Model.Vocab, again.TaskSet["length"], err)
		}
	}
	other, _ := RunConfig(want)
	if other.SetTask("listops"); other.HasTokens() {
		t.Error("another task keeps the tokens of the run")
	}
	if saved.SetDataSeed(9); saved.HasTokens() {
		t.Error("texts that are drawn anew keep the tokens of the run")
	}
	for _, set := range []string{"words", "bpe=", "bpe=x", "bpe=100"} {
		c.setTaskSettings("vocabulary", set)
		if _, err := c.OpenTask(); err == nil || !strings.Contains(err.Error(), "vocabulary") {
			t.Errorf("%s: error is %v", set, err)
		}
	}
}

// A start with damaged names of classes is refused. Names may be absent where the task has
// none of its own.
func TestStartReadsNamesOfClasses(t *testing.T) {
	t.Parallel()
	run := ownRun(t, "class", false)
	if s, err := openStart(run, nil); err != nil || len(s.classes) != 2 {
		t.Fatalf("the classes are %q, %v", s.classes, err)
	}
	names := filepath.Join(run, classesFile)
	text, err := os.ReadFile(names)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names, append(text, "garbage\n"...), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).StartFrom(run); err == nil || !strings.Contains(err.Error(), classesFile) {
		t.Errorf("error is %v", err)
	}
	if err := os.Remove(names); err != nil {
		t.Fatal(err)
	}
	if _, err := (Config{}).StartFrom(run); err == nil || !strings.Contains(err.Error(), "it has the names of the classes") {
		t.Errorf("error is %v", err)
	}
	src := kinds()["class"]
	dir, _ := taskRun(t, littleTask(src, "softmax"), src)
	if s, err := openStart(dir, nil); err != nil || s.classes != nil {
		t.Errorf("the classes are %q, %v", s.classes, err)
	}
}

// A run with the task of its start has the evaluations of this task, a text the presets'
// number of tokens. The layers stay.
func TestStartWithoutATaskHasItsEvaluations(t *testing.T) {
	t.Parallel()
	preset := longContextPreset(3, 128, 4096, 450)
	preset.Task, preset.FarEvery = "", 3
	c, err := preset.StartFrom(ownRun(t, "class", false))
	if err != nil || c.EvalSamples != 500 || c.FinalSamples != 0 {
		t.Errorf("labelled texts: %d and %d samples, %v, want 500 and all", c.EvalSamples, c.FinalSamples, err)
	}
	start := little("softmax")
	start.Model.Layers = 3
	dir, _ := run(t, start)
	if c, err = preset.StartFrom(dir); err == nil {
		c, _, err = c.PrepareTask(littleText(t))
	}
	if err != nil || c.EvalSamples != 1<<15/15 || c.FinalSamples != 1<<18/15 {
		t.Errorf("windows of 15 tokens: %d and %d, %v, want 2^15 and 2^18 tokens", c.EvalSamples, c.FinalSamples, err)
	}
	if c.Model.LayerWindows != nil {
		t.Errorf("layers of softmax have windows %v", c.Model.LayerWindows)
	}
}
