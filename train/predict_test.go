package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// openPredictor reads the model of a run and returns its predictor.
func openPredictor(path string) (*Predictor, error) {
	m, _, err := loadModel(path)
	if err != nil {
		return nil, err
	}
	return NewPredictor(path, m)
}

// ownRun trains a model of the user's own texts for a moment: to give each a class, a
// number, or each of its bytes a label. It returns the folder of the run.
func ownRun(t *testing.T, target string, quirk bool) string {
	t.Helper()
	labels := map[string][2]string{"class": {"all \xc3\xa4", "b\tb"}, "number": {"1", "3"}, "bytes": {"AAAA", "BBBB"}}[target]
	var rows strings.Builder
	rows.WriteString("text\tlabel\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "%s\t%q\n", []string{"aaaa", "bbbb"}[i%2], labels[i%2])
	}
	data := filepath.Join(t.TempDir(), "data.tsv")
	if err := os.WriteFile(data, []byte(strings.ReplaceAll(rows.String(), `\t`, "\t")), 0o666); err != nil {
		t.Fatal(err)
	}
	c := samplePreset("copy", 5, 8)
	c.SetTask("file")
	c.TaskSet = map[string]string{"data": data, "target": target, "length": "6"}
	c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden, c.Model.Mechanism = 1, 12, 2, 16, "softmax"
	c.LRAQuirk = quirk
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := taskRun(t, c, src)
	if err := os.Remove(data); err != nil { // a model does not need what it learned from
		t.Fatal(err)
	}
	return dir
}

// said are the names of labels.
func said(names []string, labels []int) string {
	var b strings.Builder
	for _, y := range labels {
		b.WriteString(names[y])
	}
	return b.String()
}

// What is said of a text is what the model's outputs for its bytes say, in the plainest
// arithmetic, and of a text that is longer than the task's, for its first bytes. A model
// that learned padded texts sees them padded.
func TestPredictionFollowsFromTheOutputs(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"class", "number", "bytes"} {
		for _, quirk := range []bool{false, true} {
			dir := ownRun(t, target, quirk)
			p, err := openPredictor(dir)
			if err != nil {
				t.Fatal(err)
			}
			kind := map[string]task.Kind{"class": task.Class, "number": task.Regression, "bytes": task.Labels}[target]
			names := map[string][]string{"class": {"all \xc3\xa4", "b\tb"}, "bytes": {"A", "B"}}[target]
			if p.Kind != kind || !slices.Equal(p.Classes, names) {
				t.Fatalf("%s: the model says %v of %q", target, p.Kind, p.Classes)
			}
			m, _, err := loadModel(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"a", "bbbb", "abba\xff\x00zz", "b"} {
				got, err := p.Predict(t.Context(), []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				var tokens []int32
				for _, b := range []byte(text)[:min(len(text), 6)] {
					tokens = append(tokens, int32(b)+1)
				}
				seen := len(tokens)
				for quirk && len(tokens) < 6 {
					tokens = append(tokens, 0)
				}
				outputs := max(len(names), 1)
				rows := 1
				if target == "bytes" {
					rows = len(tokens)
				}
				logits := make([]float32, rows*outputs)
				if err := m.Logits(t.Context(), &model.Batch{B: 1, N: len(tokens), Tokens: tokens}, logits); err != nil {
					t.Fatal(err)
				}
				what := fmt.Sprintf("%s, padded %t, %q", target, quirk, text)
				switch kind {
				case task.Regression:
					if got.Columns != 1 || got.Numbers[0] != float64(logits[0]) {
						t.Errorf("%s: %v, the output is %v", what, got.Numbers, logits[0])
					}
				case task.Labels:
					var want []byte
					for i := range seen {
						at := 0
						if logits[2*i+1] > logits[2*i] {
							at = 1
						}
						want = append(want, names[at]...)
					}
					if said(names, got.Labels) != string(want) {
						t.Errorf("%s: labels are %q, want %q of %v", what, said(names, got.Labels), want, logits)
					}
				default:
					second := 1 / (1 + math.Exp(float64(logits[0])-float64(logits[1])))
					want := 0
					if second > 0.5 {
						want = 1
					}
					if got.Class != want || len(got.Probabilities) != 2 || math.Abs(got.Probabilities[1]-second) > 0x1p-48 || math.Abs(got.Probabilities[0]-(1-second)) > 0x1p-48 {
						t.Errorf("%s: class %d, probabilities %v, want %d and %v", what, got.Class, got.Probabilities, want, second)
					}
				}
				if got.Kind != kind || kind != task.Class && got.Probabilities != nil || kind != task.Labels && got.Labels != nil {
					t.Errorf("%s: %+v", what, got)
				}
			}
			var line *LineError
			if _, err := p.Predict(t.Context(), nil); !errors.As(err, &line) || err.Error() != "the text is empty" {
				t.Errorf("%s: no text: %v", target, err)
			}
		}
	}
}

// Of equal outputs the first is the largest, and probabilities of outputs whose
// exponentials are no numbers are some.
func TestSoftmaxOfAPrediction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		row   []float32
		at    int
		probs []float64
	}{
		{[]float32{1, 1}, 0, []float64{0.5, 0.5}},
		{[]float32{0, 5000, 5000}, 1, []float64{0, 0.5, 0.5}},
		{[]float32{-5000}, 0, []float64{1}},
	} {
		at := largestIndex(c.row)
		if probs := appendSoftmax(nil, c.row, at); at != c.at || !slices.Equal(probs, c.probs) {
			t.Errorf("%v: %d, %v, want %d, %v", c.row, at, probs, c.at, c.probs)
		}
	}
}

// Calls at the same time have the bits of calls alone, and end with their context.
func TestPredictorAnswersAtTheSameTime(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"class", "number", "bytes"} {
		p, err := openPredictor(ownRun(t, target, false))
		if err != nil {
			t.Fatal(err)
		}
		const texts = 24
		alone := make([]Prediction, texts)
		text := func(i int) []byte { return []byte(strings.Repeat("ab", 1+i%3) + string(rune('a'+i))) }
		for i := range alone {
			if alone[i], err = p.Predict(t.Context(), text(i)); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for i := range alone {
					r, err := p.Predict(t.Context(), text(i))
					if err != nil || !reflect.DeepEqual(r, alone[i]) {
						t.Errorf("%s: text %d: %+v, %v, needs %+v", target, i, r, err, alone[i])
					}
				}
			})
		}
		all.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Predict(ctx, text(0)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a context that has ended: %v", target, err)
		}
		if r, err := p.Predict(t.Context(), text(0)); err != nil || !reflect.DeepEqual(r, alone[0]) {
			t.Errorf("%s: after a context that ended: %+v, %v", target, r, err)
		}
	}
}

func TestPredictRefusesWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	p, err := openPredictor(ownRun(t, "class", false))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.idle[0].e.model.Params().All() {
		for i := range w.Data {
			w.Data[i] = float32(math.NaN())
		}
	}
	if _, err := p.Predict(t.Context(), []byte("ab")); !errors.Is(err, attention.ErrNonFinite) {
		t.Errorf("error is %v", err)
	}
}

func TestOpenPredictorRefusesDamagedRuns(t *testing.T) {
	t.Parallel()
	write := func(name, content string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, configFile))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), from) {
				t.Fatalf("the configuration has no %s", from)
			}
			write(configFile, strings.Replace(string(text), from, to, 1))(t, dir)
			withoutCopies(t, dir)
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := ownRun(t, "class", false)
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string // DIR is the folder of the run
	}{
		{"another task", replace(`"task": "file"`, `"task": "copy"`), "DIR: task copy: setting \"data\": unknown; there are: symbols, length"},
		{"a task of texts", replace(`"task": "file"`, `"task": "bytelm"`), "DIR: task bytelm: its models go on with a text: farfield generate writes"},
		{"no configuration", remove(configFile), "DIR: is neither a run nor a checkpoint: it has no config.json and no checkpoint.json"},
		{"no checkpoint", remove(checkpointsFolder), "DIR: the run has no checkpoint yet"},
		{"another length", replace(`"length": "6"`, `"length": "7"`), "DIR: the run's task has 257 tokens, 0 numbers, 2 outputs and 7 positions, the model 257, 0, 2 and 6"},
		{"a number for a class", replace(`"target": "class"`, `"target": "number"`), "DIR: the run's task has 257 tokens, 0 numbers, 1 outputs and 6 positions, the model 257, 0, 2 and 6"},
		{"a target that is none", replace(`"target": "class"`, `"target": "words"`), "words"},
		{"no names", remove(classesFile), "open DIR/classes.txt: no such file or directory: it has the names of the classes; farfield train --resume --out DIR writes it, if the data is still there"},
		{"one name", write(classesFile, "\"a\"\n"), "DIR/classes.txt: has 1 names, the model 2 classes"},
		{"three names", write(classesFile, "\"a\"\n\"b\"\n\"c\"\n"), "DIR/classes.txt: has more names than the model has classes, 2"},
		{"a name without quotes", write(classesFile, "\"a\"\nb\n"), "DIR/classes.txt: line 2: \"b\\n\" is no quoted name"},
		{"an endless file", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, classesFile), maxNameBytes+1); err != nil {
				t.Fatal(err)
			}
		}, "DIR/classes.txt: is longer than 16777216 bytes"},
		{"a folder of names", func(t *testing.T, dir string) {
			remove(classesFile)(t, dir)
			if err := os.Mkdir(filepath.Join(dir, classesFile), 0o777); err != nil {
				t.Fatal(err)
			}
		}, "classes.txt: is a folder"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		if err := os.CopyFS(dir, os.DirFS(run)); err != nil {
			t.Fatal(err)
		}
		c.damage(t, dir)
		want := strings.ReplaceAll(c.want, "DIR", dir)
		if p, err := openPredictor(dir); p != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %s", c.name, err, want)
		}
	}
	m, _, err := loadModel(run)
	if err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(t.TempDir(), "model")
	if err := m.Save(alone); err != nil {
		t.Fatal(err)
	}
	_, opened := openPredictor(alone)
	_, _, loaded := loadModel(alone)
	for name, err := range map[string]error{"openPredictor": opened, "loadModel": loaded} {
		if err == nil || !strings.Contains(err.Error(), "config.json: describes a model alone") {
			t.Errorf("%s of a model without a run: error is %v", name, err)
		}
	}
	// The checkpoint of a run is as good as its folder.
	path, err := latestCheckpoint(run)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := openPredictor(path); err != nil || !slices.Equal(p.Classes, []string{"all \xc3\xa4", "b\tb"}) {
		t.Errorf("%s: %v", path, err)
	}
}

// A resumed run writes the names of its classes again.
func TestResumeNamesClasses(t *testing.T) {
	t.Parallel()
	c := littleTask(kinds()["class"], "softmax")
	src := named{kinds()["class"], []string{"no", "\n", "yes \xff"}}
	dir, _ := taskRun(t, c, src)
	if err := os.Remove(filepath.Join(dir, classesFile)); err != nil {
		t.Fatal(err)
	}
	trainer, err := Resume(src, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if got, err := readClasses(dir, 3); err != nil || !slices.Equal(got, src.classes) {
		t.Errorf("the classes are %q, %v", got, err)
	}
}

// named is a task whose classes have names.
type named struct {
	*made
	classes []string
}

func (n named) ClassNames() []string { return n.classes }

// A model without a task of the catalogue has no predictor, whatever lies two folders above it.
func TestPredictorsNeedATask(t *testing.T) {
	t.Parallel()
	src := kinds()["class"]
	run, _ := taskRun(t, littleTask(src, "softmax"), src)
	m, _, err := loadModel(run)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	writeFile(t, folder, configFile, `{"version": 99}`) // of something else
	alone := filepath.Join(folder, "a", "b")
	if err := checkpoint.SaveModel(alone, m, nil); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		run:   ": task \"class\": is none of farfield's; of a run on data of your own, Logits of model.Model gives the outputs",
		alone: ": is a checkpoint outside of a run, and has no task; Logits of model.Model gives its outputs",
	} {
		if _, err := NewPredictor(path, m); err == nil || err.Error() != path+want {
			t.Errorf("error is %v, want %s", err, path+want)
		}
	}
}
