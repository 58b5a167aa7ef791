package reproduce

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// small are lessons of a few updates.
var small = lessons(func(o *Options) ([]*lesson, error) {
	l, err := presetLesson("recall", "induction", 6, map[string]string{"length": "12"})
	if err != nil {
		return nil, err
	}
	l.Config.Batch, l.Config.FinalSamples, l.Config.EvalSamples = 4, 20, 20
	l.Config.Model.Layers = 1
	l.Methods, l.Seeds = []method{softmax, linear}, 2
	l.Length, l.Vocab, l.Baseline = 12, 21, true
	return []*lesson{l}, nil
})

func smallRow() *Row {
	return &Row{Name: "small", Seeds: true, Tunes: true, pieces: small.pieces, outcome: small.outcome(nothingMore)}
}

func TestLesson(t *testing.T) {
	o := &Options{Out: t.TempDir()}
	out, err := smallRow().Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Records) != 1+2*2 || len(out.Tables) != 1 || len(out.Figures) != 2 || len(out.Findings) != 1 {
		t.Fatalf("%d records, tables %+v, %d figures, findings %q", len(out.Records), out.Tables, len(out.Figures), out.Findings)
	}
	table := out.Tables[0]
	if len(table.Rows) < 3 || table.Rows[0][0] != "softmax" || table.Rows[0][3] != "2" || table.Rows[0][5] != "6" || !strings.HasSuffix(table.Rows[2][0], "(baseline)") {
		t.Errorf("table %+v", table)
	}
	if f := out.Findings[0]; !strings.HasPrefix(f, "recall: ") || !strings.Contains(f, "The best simple method") {
		t.Errorf("finding %q", f)
	}
	if n := len(out.Figures[0].Series); n != 2 {
		t.Errorf("%d curves", n)
	}
}

// A baseline is beaten by more than the error of the samples, where that is known. Labels have commas.
func TestBaselinesAreBeatenBeyondTheError(t *testing.T) {
	for _, x := range []struct {
		score    train.Score
		baseline task.Baseline
		want     string
	}{
		{train.Score{Metric: task.Accuracy, Value: 0.308, Samples: 500}, task.Baseline{Score: 0.262, Judged: 500}, "none is ahead of it by more than two standard errors of the samples."},
		{train.Score{Metric: task.Accuracy, Value: 0.33, Samples: 500}, task.Baseline{Score: 0.262, Judged: 500}, "ahead of it by more than two standard errors of the samples: softmax; fastmax 1, bounded."},
		{train.Score{Metric: task.MSE, Value: 0.05, Error: 0.01}, task.Baseline{Score: 0.08, Error: 0.02}, "none is ahead of it by more than two standard errors of the samples."},
		{train.Score{Metric: task.Nats, Value: 2.04}, task.Baseline{Score: 2.05}, "ahead of it: softmax; fastmax 1, bounded."},
	} {
		out, s := new(Outcome), &scored{lesson: new(lesson), Baselines: []task.Baseline{x.baseline}}
		for _, m := range []*method{&softmax, &fastmax1} {
			s.Results = append(s.Results, result{method: m, Runs: []learned{{Score: x.score}}, Value: x.score.Value})
		}
		out.order(s)
		if !strings.HasSuffix(out.Findings[0], x.want) {
			t.Errorf("%+v: %q, want %q", x.score, out.Findings[0], x.want)
		}
	}
}

// Simple methods have a table where nothing is trained.
func TestLessonWithoutTrainings(t *testing.T) {
	out, err := smallRow().Run(t.Context(), &Options{Out: t.TempDir(), Only: regexp.MustCompile("baselines")}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Tables) != 1 || !strings.HasSuffix(out.Tables[0].Title, "simple methods alone") || len(out.Tables[0].Rows) == 0 || len(out.Findings) > 0 {
		t.Errorf("tables %+v, findings %q", out.Tables, out.Findings)
	}
}

// Commands in notes name pieces that there are.
func TestNotesNamePieces(t *testing.T) {
	for _, x := range []struct {
		row, pattern string
		options      Options
		pieces       int
	}{
		{"large-pictures", "^" + largePatches, Options{Budget: Hour}, 5},
		{"linear-table1", "lsh", Options{Budget: Hour}, 2},
		{"linear-table2", "lsh", Options{Budget: Hour}, 2},
		{"listops", "^listops-long", Options{Budget: Hour}, 4},
		{"listops", "^listops-(softmax|linear)-seed-[23]", Options{Budget: Hour, Seeds: 3}, 4},
		{"fast-fig5", "^listops-(softmax|linear|fastmax-2--scale-1)-", Options{Budget: Hour, Tune: true}, 9},
		{"arena", "^listops-padded", Options{Budget: Hour}, 2},
	} {
		r, err := Lookup(x.row)
		if err != nil {
			t.Fatal(err)
		}
		list, err := r.Pieces(&x.options)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list {
			if regexp.MustCompile(x.pattern).MatchString(list[i].Name) {
				n++
			}
		}
		if n != x.pieces {
			t.Errorf("%s: %s matches %d pieces, want %d", x.row, x.pattern, n, x.pieces)
		}
	}
	if text, err := cifarDrawn.lessons().namedHour("linear-table2", "lsh"); err != nil || !strings.Contains(text, "--pieces 'lsh'`, about 0.508 hours") {
		t.Errorf("%v: %s", err, text)
	}
}

// An interrupted training goes on, and ends as one that was not interrupted.
func TestLessonGoesOn(t *testing.T) {
	whole, parts := &Options{Out: t.TempDir(), Seeds: 1}, &Options{Out: t.TempDir(), Seeds: 1}
	want, err := smallRow().Run(t.Context(), whole, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = smallRow().Run(ctx, parts, Observer{Progress: func(p Progress) {
		if strings.Contains(p.Piece, "softmax") && p.Share >= 0.5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	steps, _, err := train.ReadMetrics(parts.folder(smallRow()) + "/work/recall-softmax-seed-1")
	if err != nil || len(steps) == 0 || len(steps) == 6 {
		t.Fatalf("%d updates were made before the interrupt, %v", len(steps), err)
	}
	parts.Build.Revision = "another" // than the one that began
	got, err := smallRow().Run(t.Context(), parts, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range got.Records {
		if begun := record.Piece == "recall-baselines" || record.Piece == "recall-softmax-seed-1"; begun != (record.Build.Revision == "") {
			t.Errorf("%s was made by %v", record.Piece, record.Build)
		}
	}
	for i, row := range want.Tables[0].Rows {
		// All but the seconds.
		if n := len(row) - 1; !slices.Equal(row[:n], got.Tables[0].Rows[i][:n]) {
			t.Errorf("row %v, uninterrupted %v", got.Tables[0].Rows[i], row)
		}
	}
}

// What an interrupted training of another configuration left is no part of this one,
// and what was made is made again from its beginning, not from its end.
func TestLessonBeginsAnew(t *testing.T) {
	updates := 6
	row := smallRow()
	of := lessons(func(o *Options) ([]*lesson, error) {
		list, err := small(o)
		if err == nil {
			list[0].Config.Steps = updates
		}
		return list, err
	})
	row.pieces, row.outcome = of.pieces, of.outcome(nothingMore)
	o := &Options{Out: t.TempDir(), Seeds: 1, Build: Build{Revision: "first"}}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := row.Run(ctx, o, Observer{Progress: func(p Progress) {
		if strings.Contains(p.Piece, "softmax") && p.Share >= 0.5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	made := func(want int) {
		t.Helper()
		out, err := row.Run(t.Context(), o, Observer{})
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range out.Records {
			var x learned
			if err := json.Unmarshal(record.Result, &x); err != nil || record.Piece == "recall-baselines" {
				continue
			}
			if n := x.Steps[len(x.Steps)-1].Step; n != want {
				t.Errorf("%s ended after update %d of %d", record.Piece, n, want)
			}
			if record.Build != o.Build {
				t.Errorf("%s was made by %v, this is %v", record.Piece, record.Build, o.Build)
			}
		}
		if left, err := os.ReadDir(filepath.Join(o.folder(row), "work")); err != nil || len(left) != 0 {
			t.Errorf("work is left: %v, %v", left, err)
		}
	}
	updates, o.Build.Revision = 8, "second"
	made(8)
	o.Remake, o.Build.Revision = func(*Record) bool { return true }, "third"
	made(8)
}

func TestTune(t *testing.T) {
	o := &Options{Out: t.TempDir(), Seeds: 1, Tune: true}
	out, err := smallRow().Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Records) != 1+2*len(tuning) || len(out.Tables) != 2 {
		t.Fatalf("%d records, %d tables", len(out.Records), len(out.Tables))
	}
	grid := out.Tables[1]
	if len(grid.Head) != 1+len(tuning) || len(grid.Rows) != 2 || slices.Contains(grid.Rows[0], none) {
		t.Errorf("grid %+v", grid)
	}
}

// TestBestRate has the rate chosen by the validation part, in both senses of
// better.
func TestBestRate(t *testing.T) {
	l := &lesson{Name: "x", Methods: []method{softmax}, Seeds: 1}
	l.Config.Rate = 1
	o := &Options{Tune: true}
	for metric, want := range map[task.Metric]float64{task.Accuracy: 4, task.MSE: 0.25} {
		r := new(Results)
		for i, factor := range tuning {
			x := learned{Score: train.Score{Metric: metric, Value: 0.5}}
			x.Evals = []train.Eval{{Eval: train.EvalLook, Score: train.Score{Value: float64(i)}}, {Eval: train.EvalPart, Score: train.Score{Value: -float64(i)}}}
			addResult(t, r, l.piece(&softmax, 1, factor), x)
		}
		list, _, err := l.results(o, r)
		if err != nil || len(list) != 1 || list[0].Factor != want {
			t.Errorf("%s: %+v, %v; the rate's factor is to be %g", metric, list, err, want)
		}
	}
}

func TestBaselinesOfTextsLearnFromTokens(t *testing.T) {
	for metric, want := range map[task.Metric]string{task.Nats: "from 9 tokens", task.Accuracy: "from 9 samples"} {
		s := scored{&lesson{Name: "x"}, []result{{method: &softmax, Runs: []learned{{Score: train.Score{Metric: metric}}}}}, []task.Baseline{{Learned: 9, Judged: 8}}}
		if note := s.table().Note; !strings.Contains(note, want) {
			t.Errorf("%s: %q, want %q", metric, note, want)
		}
	}
}

// TestShapesNets has the published numbers of parameters.
func TestShapesNets(t *testing.T) {
	all, err := shapesLessons(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range shapesPublished {
		for i := range all[0].Methods {
			m := &all[0].Methods[i]
			if m.Label != label {
				continue
			}
			c := all[0].configFor(m, 1, 1)
			src, err := c.OpenTask()
			if err != nil {
				t.Fatal(err)
			}
			if c, _, err = c.PrepareTask(src); err != nil {
				t.Fatalf("%s: %v", label, err)
			}
			if got := c.Model.Params(); got != want {
				t.Errorf("%s has %d parameters, %d are published", label, got, want)
			}
		}
	}
}

func TestStretchedTrainingsHaveAsManyLooks(t *testing.T) {
	for _, steps := range []int{700, 1400, 1696, 5000} {
		c := train.Config{Steps: 1400, WarmUp: 140, EvalEvery: 70}
		if stretchUpdates(&c, steps); c.Steps != steps || c.Steps/c.EvalEvery != 20 {
			t.Errorf("%d updates are looked at every %d", c.Steps, c.EvalEvery)
		}
	}
}
