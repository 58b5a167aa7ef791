package reproduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// TestByteUpdates has updates that see as many bytes as were asked for.
func TestByteUpdates(t *testing.T) {
	lists, err := byteLessons(&Options{Budget: Hour})
	if err != nil || len(lists) != 6 {
		t.Fatalf("%d lessons, %v", len(lists), err)
	}
	for _, l := range lists {
		seen := 0
		for step := range l.Config.Steps {
			batch, context := l.Config.BatchShape(step)
			seen += batch * context
		}
		if want := 3 << 19; seen < want*19/20 || seen > want*21/20 {
			t.Errorf("%s sees %d bytes, %d were asked for", l.Name, seen, want)
		}
		if l.Config.FirstContext != 256 || l.Config.Batch*l.Config.Model.Context < byteUpdate {
			t.Errorf("%s: windows of %d to %d, %d at a time", l.Name, l.Config.FirstContext, l.Config.Model.Context, l.Config.Batch)
		}
	}
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
	if len(table.Rows) != 4+3 || len(out.Figures) != 3+2 {
		t.Fatalf("table %+v, %d figures", table, len(out.Figures))
	}
	for i, row := range table.Rows {
		learned := i < 4
		if row[0] != "own" || row[1] != "128" || row[3] == none || learned == (row[4] == none) || learned == (row[6] == none) {
			t.Errorf("row %v", row)
		}
	}
	// A table of pairs of tokens learns a text of one line.
	if table.Rows[6][2] != "after two (baseline)" || table.Rows[6][3] >= table.Rows[4][3] {
		t.Errorf("baselines %v", table.Rows[4:])
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
