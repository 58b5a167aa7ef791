package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tokenizer"
)

// withoutCopies makes the run in dir a run of a build that wrote no copies.
func withoutCopies(t *testing.T, dir string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, checkpointsFolder, "*", manifestFile))
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for _, path := range list {
		m, err := checkpoint.Read(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{runFile, classesFile, columnsFile, scalesFile, tokenizerFile, manifestFile} {
			if err := os.RemoveAll(filepath.Join(filepath.Dir(path), name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.WriteInto(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, startFile)); err != nil {
		t.Fatal(err)
	}
}

// edit replaces text in a file.
func edit(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), from) {
		t.Fatalf("%s has no %s: %v", path, from, err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
}

// copyRun copies the folder of a run.
func copyRun(t *testing.T, run string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS(run)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A changed configuration is refused with the field and both values, unless the checkpoint
// has no copy of it. Places of files may change.
func TestConfigIsBoundToCheckpoints(t *testing.T) {
	t.Parallel()
	run, _ := run(t, little("softmax"))
	for _, c := range []struct{ from, to, want string }{
		{`"lr": 0.004`, `"lr": 0.04`, "lr is 0.04, in CKPT it is 0.004"},
		{`"seed": 1`, `"seed": 2`, "seed is 2, in CKPT it is 1"},
		{`"seed": 1`, `"seed": null`, "seed is 0, in CKPT it is 1"},
		{`"width": 12`, `"width": 24`, "model.width is 24, in CKPT it is 12"},
		{`"batch": 3`, `"batch": 4`, "batch is 4, in CKPT it is 3"},
		{`"save_every": 10`, `"save_every": 11`, "save_every is 11, in CKPT it is 10"},
		{`"data_seed": `, `"input_mean": [1], "data_seed": `, "input_mean[0] is 1, in CKPT it is absent"},
		{`"data_seed": `, `"folder": "/elsewhere", "task_set": {"data": "/moved"}, "data_seed": `, ""},
	} {
		dir := copyRun(t, run)
		text, err := os.ReadFile(filepath.Join(dir, configFile))
		if err != nil {
			t.Fatal(err)
		}
		if i := strings.Index(string(text), `"lr": `); strings.HasPrefix(c.from, `"lr"`) { // of the preset
			line, _, _ := strings.Cut(string(text[i:]), ",")
			c.from, c.want = line, "lr is 0.04, in CKPT it is "+strings.TrimPrefix(line, `"lr": `)
		}
		edit(t, filepath.Join(dir, configFile), c.from, c.to)
		want := strings.ReplaceAll(c.want, "CKPT", filepath.Join(dir, checkpointsFolder, "step-00000030"))
		trainer, resumed := Resume(littleText(t), dir)
		if resumed == nil {
			trainer.Close()
		}
		_, _, loaded := loadModel(dir)
		for _, err := range []error{resumed, loaded, LengthenRuns(littleText(t), 40, dir)} {
			if (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: error is %v, want %s", c.to, err, want)
			}
		}
		withoutCopies(t, dir)
		if _, _, err := loadModel(dir); err != nil {
			t.Errorf("%s: without a copy the error is %v", c.to, err)
		}
	}
}

// Names of classes and columns, and scales, are bound to the checkpoint.
func TestNamesAreBoundToCheckpoints(t *testing.T) {
	t.Parallel()
	folder, _ := ownSeries(t)
	numbers := samplePreset("series", 5, 8, "ask", "number", "length", "8", "data", filepath.Join(folder, "list.csv"))
	numbers.Model.Positions = ""
	numbers.Model.Layers, numbers.Model.Width, numbers.Model.Heads, numbers.Model.Hidden, numbers.Model.Mechanism = 1, 12, 2, 16, "softmax"
	src, err := numbers.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	scaled, _ := taskRun(t, numbers, src)
	for _, c := range []struct{ run, file, from, to, want string }{
		{ownRun(t, "class", false), classesFile, `"b`, `"c`, `class 1 is "c\tb"`},
		{scaled, scalesFile, `"deviation":[`, `"deviation":[9`, "deviation[0] is 9"},
		{scaled, columnsFile, `"y"`, `"z"`, `column 1 is "z"`},
	} {
		dir := copyRun(t, c.run)
		edit(t, filepath.Join(dir, c.file), c.from, c.to)
		if _, err := openPredictor(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.file)+": "+c.want) {
			t.Errorf("%s: error is %v, want %s", c.file, err, c.want)
		}
		at, err := findCheckpoint(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadModel(copyRun(t, at)); err != nil {
			t.Errorf("%s: outside of its run the error is %v", c.file, err)
		}
		withoutCopies(t, dir)
		if _, err := openPredictor(dir); err != nil {
			t.Errorf("%s: without a copy the error is %v", c.file, err)
		}
		dir = copyRun(t, c.run)
		if err := os.Remove(filepath.Join(dir, c.file)); err != nil {
			t.Fatal(err)
		}
		if _, err := openPredictor(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, c.file)) {
			t.Errorf("%s is missing: error is %v", c.file, err)
		}
	}
}

// A run of a text keeps the tokens of its start, and its checkpoint has them in the vocabulary.
func TestTokensOfTextsAreBoundToCheckpoints(t *testing.T) {
	t.Parallel()
	data, text := filepath.Join(t.TempDir(), "text"), task.InventText(1, 3000).Text
	words, err1 := tokenizer.Train(t.Context(), nil, 256)
	chars, err2 := token.NewCharVocabulary(text)
	others, err3 := token.NewCharVocabulary(bytes.ReplaceAll(text, []byte("e"), []byte("~")))
	if err := errors.Join(err1, err2, err3, os.WriteFile(data, text, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		task, file string
		vocab      *token.Vocabulary
		change     func(path string)
		want       string
	}{
		{task.ByteLM, tokenizerFile, token.NewTokenizerVocabulary(words), func(path string) {
			edit(t, path, `"a":`, `"ab":`)
			edit(t, path, `"b":`, `"a":`)
			edit(t, path, `"ab":`, `"b":`)
		}, ": is not the tokenizer in "},
		{task.CharLM, vocabFile, chars, func(path string) {
			if err := others.Save(path); err != nil {
				t.Fatal(err)
			}
		}, ": its SHA-256 is "},
		{task.ByteLM, tokenizerFile, token.NewByteVocabulary(), func(path string) {
			if err := os.WriteFile(path, words.JSON(), 0o666); err != nil {
				t.Fatal(err)
			}
		}, ": is not the tokenizer in "},
	} {
		m, err := model.New(model.Config{Kind: model.Decoder, Vocab: k.vocab.Size(), Layers: 1, Heads: 1, Width: 8, Context: 16,
			Positions: model.Rotary, Mechanism: "softmax"}, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		start := filepath.Join(t.TempDir(), "start")
		if err := checkpoint.SaveModel(start, m, k.vocab); err != nil {
			t.Fatal(err)
		}
		c := little("softmax")
		c.SetTask(k.task)
		c.setTaskSettings("data", data)
		if c, err = c.StartFrom(start); err != nil {
			t.Fatal(err)
		}
		c.Steps, c.Batch = 2, 2
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		dir, _ := taskRun(t, c, src, 1)
		if _, _, err := loadModel(dir); err != nil {
			t.Error(err)
		}
		path := filepath.Join(dir, k.file)
		k.change(path)
		_, _, loaded := loadModel(dir)
		_, resumed := Resume(src, dir)
		for _, err := range []error{loaded, resumed} {
			if err == nil || !strings.Contains(err.Error(), path+k.want) {
				t.Errorf("%s %s: error is %v", k.task, k.file, err)
			}
		}
	}
}

// A run is bound to its data and its first weights before its first checkpoint.
func TestStartIsBound(t *testing.T) {
	t.Parallel()
	dir := interrupted(t, little("softmax"), 4)
	other, err := task.NewText(task.InventText(2, 3000), token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(other, dir); err == nil || !strings.Contains(err.Error(), "not the data that the run began with") {
		t.Errorf("error is %v", err)
	}
	want, _ := run(t, little("softmax"))
	resume(t, dir)
	same(t, dir, want)

	for _, rank := range []int{0, 2} {
		c, src := tunedTexts(t, rank)
		c.SaveEvery = 0
		first := filepath.Join(t.TempDir(), "run")
		trainer, err := New(c, src, first)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		copied := ""
		trainer.Train(ctx, Observer{Step: func(s Step) {
			copied = copyRun(t, first)
			cancel()
		}})
		trainer.Close()
		if err := LengthenRuns(littleText(t), 40, c.Init); err != nil {
			t.Fatal(err)
		}
		unchanged := copyRun(t, copied)
		trainer, err = Resume(src, unchanged)
		if err != nil {
			t.Fatal(err)
		}
		trainer.Close()
		resume(t, c.Init)
		if _, err := Resume(src, copied); err == nil || !strings.Contains(err.Error(), "not the model that the run began with") {
			t.Errorf("error is %v", err)
		}
		if err := os.Remove(filepath.Join(copied, startFile)); err != nil {
			t.Fatal(err)
		}
		trainer, err = Resume(src, copied)
		if err != nil {
			t.Fatal(err)
		}
		trainer.Close()
	}
}

// A run without copies goes on to the same bits, and has copies from then on.
func TestRunWithoutCopiesContinues(t *testing.T) {
	t.Parallel()
	want, _ := run(t, little("softmax"))
	dir := interrupted(t, little("softmax"), 17)
	withoutCopies(t, dir)
	resume(t, dir)
	same(t, dir, want)
	if list := names(t, filepath.Join(dir, checkpointsFolder, "step-00000030")); !slices.Contains(list, runFile) {
		t.Errorf("the checkpoint has %v", list)
	}
}
