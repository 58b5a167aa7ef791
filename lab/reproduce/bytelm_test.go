package reproduce

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

func TestByteUpdatesSeeTheBytesOfTheBudget(t *testing.T) {
	lists, err := byteLessons(&Options{Budget: Hour})
	if err != nil || len(lists) != 3 {
		t.Fatalf("%d lessons, %v", len(lists), err)
	}
	for _, l := range lists {
		seen := 0
		for step := range l.Config.Steps {
			batch, context := l.Config.BatchShape(step)
			seen += batch * context
		}
		want := 5_000_000
		if l.EqualSeconds {
			want *= 2
		}
		if seen < want*19/20 || seen > want*21/20 {
			t.Errorf("%s sees %d bytes, %d were asked for", l.Name, seen, want)
		}
		if l.Config.FirstContext != 256 || l.Config.Batch*l.Config.Model.Context < byteUpdate {
			t.Errorf("%s: windows of %d to %d, %d at a time", l.Name, l.Config.FirstContext, l.Config.Model.Context, l.Config.Batch)
		}
	}
}

// Every training of every budget has a model, and pieces of the three seeds that are
// compared.
func TestByteTrainingsAreConfigured(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(path, make([]byte, 1<<18), 0o666); err != nil {
		t.Fatal(err)
	}
	for budget := Quick; budget <= Full; budget++ {
		o := &Options{Budget: budget, Text: path}
		all, err := byteLessons(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			for i := range l.Methods {
				m := &l.Methods[i]
				c := l.configFor(m, 1, 1)
				src, err := c.OpenTask()
				if err != nil {
					t.Fatal(err)
				}
				ready, _, err := c.PrepareTask(src)
				if err != nil {
					t.Fatalf("%v, %s, %s: %v", budget, l.Name, m.Label, err)
				}
				for name, value := range ready.Model.Set {
					if m.Name == "fastmax" && m.Set[name] != value {
						t.Errorf("%s leaves setting %s=%s to the defaults of training", m.Label, name, value)
					}
				}
			}
			if got, want := len(l.seeds(o, &l.Methods[0])), pick(budget, 1, 3, 3); !l.EqualSeconds && got != want {
				t.Errorf("%v, %s: %d seeds, want %d", budget, l.Name, got, want)
			}
		}
	}
}

// Equal seconds give a mechanism updates by the ratio of times, and a training of them
// goes on as one of its own.
func TestEqualSecondsChooseUpdates(t *testing.T) {
	l, err := presetLesson("recall", "induction", 40, map[string]string{"length": "12"})
	if err != nil {
		t.Fatal(err)
	}
	l.Config.Batch, l.Config.FinalSamples, l.Config.EvalSamples = 4, 20, 20
	l.Config.Model.Layers, l.Config.Model.Width, l.Config.Model.Heads, l.Config.Model.Hidden = 1, 16, 1, 16
	l.Methods, l.EqualSeconds = []method{softmax, linear}, true
	row := &Row{Name: "small", pieces: lessons(func(*Options) ([]*lesson, error) { return []*lesson{l}, nil }).pieces,
		outcome: lessons(func(*Options) ([]*lesson, error) { return []*lesson{l}, nil }).outcome(nothingMore)}
	out, err := row.Run(t.Context(), &Options{Out: t.TempDir(), Seeds: 1}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Records {
		var x learned
		if err := json.Unmarshal(r.Result, &x); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(r.Piece, "softmax") && x.Updates != 40 || x.Updates < 1 || x.Steps[len(x.Steps)-1].Step != x.Updates {
			t.Errorf("%s: %d updates, the last step is %d", r.Piece, x.Updates, x.Steps[len(x.Steps)-1].Step)
		}
	}
	if note := out.Tables[0].Note; !strings.Contains(note, "Equal seconds") {
		t.Errorf("note %q", note)
	}
}

func TestPairedDifferencesUseCommonSeeds(t *testing.T) {
	runs := func(values map[uint64]float64) (x result) {
		x.method = &method{Label: "m"}
		for seed := range uint64(4) {
			if v, found := values[seed]; found {
				r := learned{seed: seed}
				r.Score.Bits = v
				x.Runs = append(x.Runs, r)
			}
		}
		return x
	}
	bits := func(r *learned) float64 { return r.Score.Bits }
	a, b := runs(map[uint64]float64{1: 3, 2: 4, 3: 9}), runs(map[uint64]float64{1: 2, 2: 1})
	p := comparePairs(&a, &b, bits)
	if p.seeds != 2 || p.mean != 2 || math.Abs(p.error-1) > 1e-15 { // differences 1 and 3
		t.Errorf("difference %+v", p)
	}
	for most, want := range map[float64]string{5: "reached", 2.5: "reached, within noise", 1: "not reached, within noise", -1: "not reached"} {
		if got := p.judge(most, false); !strings.HasSuffix(got, ": "+want) {
			t.Errorf("%g: %q, want %q", most, got, want)
		}
	}
	if b = runs(map[uint64]float64{3: 9}); !strings.Contains(comparePairsText(&a, &b, bits), "one seed") {
		t.Errorf("difference %s", comparePairsText(&a, &b, bits))
	}
	if p = comparePairs(&a, &b, bits); p.judge(0, true) != "< 0 required: not reached" {
		t.Errorf("no difference is judged %q", p.judge(0, true))
	}
}

func comparePairsText(a, b *result, value func(*learned) float64) string {
	p := comparePairs(a, b, value)
	return p.String()
}

// TestOwnText learns from a text of the user's for two updates.
func TestOwnText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("a text of somebody's own\n", 200)), 0o666); err != nil {
		t.Fatal(err)
	}
	o := &Options{Out: t.TempDir(), Text: path, Seeds: 2}
	var tiny lessons = func(o *Options) ([]*lesson, error) {
		list, err := byteLessons(o)
		if err != nil {
			return nil, err
		}
		l := list[0]
		c := &l.Config
		c.Steps, c.WarmUp, c.EvalEvery, c.SaveEvery, c.EvalSamples, c.FinalSamples = 2, 0, 1, 1, 1, 2
		c.Model.Context, c.FirstContext, c.FirstBatch, c.Batch = 128, 64, 2, 1
		c.Model.Layers, c.Model.Width, c.Model.Heads = 1, 16, 1
		return list[:1], nil
	}
	row := byteLM
	row.pieces, row.outcome = tiny.pieces, tiny.outcome(byteFindings)
	out, err := row.Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.Command, "--text "+path) {
		t.Errorf("command %q", out.Command)
	}
	table := out.Tables[0]
	if len(table.Rows) != 5+3 || len(out.Figures) != 4+2 {
		t.Fatalf("table %+v, %d figures", table, len(out.Figures))
	}
	for i, row := range table.Rows {
		learned := i < 5
		if row[0] != "own" || row[1] != "128" || row[3] == none || learned == (row[4] == none) || learned == (row[6] == none) {
			t.Errorf("row %v", row)
		}
	}
	// A table of pairs of tokens learns a text of one line.
	if table.Rows[7][2] != "after two (baseline)" || table.Rows[7][3] >= table.Rows[5][3] {
		t.Errorf("baselines %v", table.Rows[5:])
	}
	if pairs := out.Tables[1]; len(pairs.Rows) != 5 || !strings.Contains(pairs.Rows[0][2], "(2 seeds)") || !strings.Contains(pairs.Rows[0][3], "required: ") || pairs.Rows[4][3] != none {
		t.Errorf("paired differences %+v", pairs)
	}
	if _, err := out.Write(o); err != nil {
		t.Error(err)
	}
}

// TestDiverged has a training that ends without a score beside those that have one.
func TestDiverged(t *testing.T) {
	l := &lesson{Name: "x", Methods: []method{softmax, linear}, Seeds: 1}
	l.Config.Rate = 1
	var all lessons = func(*Options) ([]*lesson, error) { return []*lesson{l}, nil }
	o := &Options{Tune: true}
	r := new(Results)
	for _, m := range l.Methods {
		for i, factor := range tuning {
			x := learned{Score: train.Score{Metric: task.MSE, Value: 1 / factor}, Steps: []train.Step{{Step: 1, Loss: 1, Elapsed: 1}}}
			if m.Name == linear.Name && i == 2 {
				x = learned{Diverged: "step 3: the run diverged"}
			}
			addResult(t, r, l.piece(&m, 1, factor), x)
		}
	}
	out, err := all.outcome(nothingMore)(o, r)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(out.Findings, "\n"); !strings.Contains(got, "x: linear diverged at a rate of learning of 4.00.") {
		t.Errorf("findings %q", got)
	}
	grid := out.Tables[1]
	if grid.Rows[0][3] == diverged || grid.Rows[1][3] != diverged || out.Tables[0].Rows[1][1] != "1.00" {
		t.Errorf("tables %+v", out.Tables)
	}
}
