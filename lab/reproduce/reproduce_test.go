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
	"time"

	"github.com/farfield-ml/farfield/internal/report"
)

// asked are the reproductions that the project sets out to have.
var asked = []string{
	"fast-fig2", "fast-fig3", "fast-fig4", "fast-fig5", "fast-table1", "fast-table2", "fast-fig6", "fast-kernel",
	"fast-locality", "fast-gradients", "taylorshift-crossover", "taylorshift-scaling", "taylorshift-heads",
	"taylorshift-accuracy", "linear-fig1", "linear-table1", "linear-table2", "linear-lsh", "linear-latency", "linear-copy",
	"slides-shapes", "mqar", "needle", "bytelm", "listops", "arena", "arena-minutes", "pairs", "longdocs", "large-pictures", "spoken-digits", "long-signal", "carry", "multipole-input", "exchange", "multipole-speed", "multipole-whole", "multipole-scratch", "precision",
}

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rows() {
		if !slices.Contains(asked, r.Name) {
			t.Errorf("%s is none of those that were asked for", r.Name)
		}
		if seen[r.Name] {
			t.Errorf("%s is there twice", r.Name)
		}
		seen[r.Name] = true
		if r.Doc == "" || r.Source == "" || r.Claim == "" {
			t.Errorf("%s: a field is empty", r.Name)
		}
		if found, err := Lookup(r.Name); err != nil || found != r {
			t.Errorf("Lookup(%q) is %v, %v", r.Name, found, err)
		}
	}
	if _, err := Lookup("nothing"); err == nil || !strings.Contains(err.Error(), "fast-fig3") {
		t.Errorf("error is %v", err)
	}
}

// TestPieces holds the pieces of every row and budget: names that are files, configurations
// that are JSON, costs that grow with the budget.
func TestPieces(t *testing.T) {
	for _, r := range Rows() {
		last := 0.0
		for b := Quick; b <= Full; b++ {
			o := &Options{Budget: b, Out: t.TempDir()}
			pieces, err := r.Pieces(o)
			if err != nil {
				t.Fatal(err)
			}
			names, cost := map[string]bool{}, 0.0
			for _, p := range pieces {
				if names[p.Name] || strings.ContainsAny(p.Name, "/\\ .,") || p.Name == "" {
					t.Errorf("%s %v: piece %q", r.Name, b, p.Name)
				}
				names[p.Name] = true
				if _, err := json.Marshal(p.Config); err != nil {
					t.Errorf("%s %s: %v", r.Name, p.Name, err)
				}
				if !(p.FLOPs >= 0 && p.FLOPs < 1e20) || p.Time < 0 {
					t.Errorf("%s %s costs %g operations and %v", r.Name, p.Name, p.FLOPs, p.Time)
				}
				cost += p.FLOPs/1e11 + p.Time.Seconds()
			}
			if len(pieces) == 0 || cost < last {
				t.Errorf("%s: budget %v costs %g, the one before %g", r.Name, b, cost, last)
			}
			last = cost
			if b == Quick && cost > 600 {
				t.Errorf("%s: quick takes %g s at 100 GFLOP/s", r.Name, cost)
			}
			// Nothing is there yet.
			out, err := r.Saved(o)
			if err != nil {
				t.Errorf("%s without results: %v", r.Name, err)
				continue
			}
			if len(out.Missing) != len(pieces) || len(out.Findings) > 0 || len(out.Figures) > 0 {
				t.Errorf("%s without results: %d of %d pieces missing, findings %q, %d figures", r.Name, len(out.Missing), len(pieces), out.Findings, len(out.Figures))
			}
		}
	}
}

// counting is a row of two pieces that tells how often each ran.
func counting(runs map[string]int, config any) *Row {
	return &Row{
		Name: "counting",
		pieces: func(*Options) ([]Piece, error) {
			var list []Piece
			for _, name := range []string{"one", "two"} {
				list = append(list, Piece{Name: name, Config: config, FLOPs: 1, run: func(w *Work) (any, error) {
					runs[name]++
					w.reportShare(0.5)
					return runs[name], w.Ctx.Err()
				}})
			}
			return list, nil
		},
		outcome: func(_ *Options, r *Results) (*Outcome, error) {
			out := new(Outcome)
			for _, name := range []string{"one", "two"} {
				if n, found, err := get[int](r, name); err != nil {
					return nil, err
				} else if found {
					out.find("%s %d", name, n)
				}
			}
			return out, nil
		},
	}
}

func TestRunGoesOn(t *testing.T) {
	began := time.Now()
	runs := map[string]int{}
	o := &Options{Out: t.TempDir(), Build: Build{Revision: "0123456789abcdef"}}
	ctx, cancel := context.WithCancel(t.Context())
	var saved []string
	stop := Observer{Saved: func(r *Record) {
		saved = append(saved, r.Piece)
		cancel()
	}}
	if _, err := counting(runs, 1).Run(ctx, o, stop); !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v", err)
	}
	if runs["one"] != 1 || runs["two"] != 0 || !slices.Equal(saved, []string{"one"}) {
		t.Fatalf("before the interrupt %v ran, %v were saved", runs, saved)
	}
	half, err := counting(runs, 1).Saved(o)
	if err != nil || !slices.Equal(half.Missing, []string{"two"}) || !slices.Equal(half.Findings, []string{"one 1"}) {
		t.Errorf("half of it is %+v, %v", half, err)
	}

	var told []Progress
	out, err := counting(runs, 1).Run(t.Context(), o, Observer{Progress: func(p Progress) { told = append(told, p) }})
	if err != nil {
		t.Fatal(err)
	}
	if runs["one"] != 1 || runs["two"] != 1 || len(out.Records) != 2 || len(out.Missing) != 0 {
		t.Errorf("%v ran, outcome %+v", runs, out)
	}
	if out.Records[0].Build != o.Build || out.Records[0].Machine == "" || out.Records[0].Started.Before(began) {
		t.Errorf("record %+v", out.Records[0])
	}
	if len(told) != 2 || told[0].Finished != 1 || told[0].Total != 2 || told[1].Share != 0.5 {
		t.Errorf("told %+v", told)
	}

	// All is there: nothing runs.
	if _, err := counting(runs, 1).Run(t.Context(), o, Observer{}); err != nil || runs["one"] != 1 || runs["two"] != 1 {
		t.Errorf("%v, %v ran", err, runs)
	}
	// Another configuration: everything does.
	if _, err := counting(runs, map[string]int{"n": 2}).Run(t.Context(), o, Observer{}); err != nil || runs["one"] != 2 || runs["two"] != 2 {
		t.Errorf("%v, %v ran", err, runs)
	}
	// What is to be made again is.
	o.Remake = func(r *Record) bool { return r.Piece == "two" }
	if _, err := counting(runs, map[string]int{"n": 2}).Run(t.Context(), o, Observer{}); err != nil || runs["one"] != 2 || runs["two"] != 3 {
		t.Errorf("%v, %v ran", err, runs)
	}
	// Pieces that are not asked for are missing.
	some := &Options{Out: t.TempDir(), Only: regexp.MustCompile("^t")}
	part, err := counting(runs, 1).Run(t.Context(), some, Observer{})
	if err != nil || runs["one"] != 2 || runs["two"] != 4 || !slices.Equal(part.Missing, []string{"one"}) {
		t.Errorf("%v, %v ran, missing are %v", err, runs, part.Missing)
	}
}

// A run may be killed when the record of a piece is written and its work still there.
func TestRunRemovesWorkThatAKillLeftBesideItsRecord(t *testing.T) {
	o := &Options{Out: t.TempDir()}
	r := counting(map[string]int{}, 1)
	if _, err := r.Run(t.Context(), o, Observer{}); err != nil {
		t.Fatal(err)
	}
	s := store{o.folder(r)}
	work, _, err := s.begin(&Piece{Name: "one", Config: 1}, []byte("1"), Build{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(t.Context(), o, Observer{}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Dir(work)); err != nil || len(left) != 0 {
		t.Errorf("work left over: %v, %v", left, err)
	}
}

func TestDamagedRecord(t *testing.T) {
	o := &Options{Out: t.TempDir()}
	r := counting(map[string]int{}, 1)
	if _, err := r.Run(t.Context(), o, Observer{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.folder(r), "pieces", "one.json")
	if err := os.WriteFile(path, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Saved(o); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("error is %v", err)
	}
}

func TestFailureSavesNothing(t *testing.T) {
	failure := errors.New("no numbers")
	r := counting(map[string]int{}, 1)
	r.pieces = func(*Options) ([]Piece, error) {
		return []Piece{{Name: "one", run: func(*Work) (any, error) { return nil, failure }}}, nil
	}
	o := &Options{Out: t.TempDir()}
	if _, err := r.Run(t.Context(), o, Observer{}); !errors.Is(err, failure) || !strings.Contains(err.Error(), "counting: one") {
		t.Errorf("error is %v", err)
	}
	if out, err := r.Saved(o); err != nil || len(out.Records) != 0 {
		t.Errorf("saved %v, %v", out.Records, err)
	}
}

func TestMarkdown(t *testing.T) {
	runs := map[string]int{}
	r := counting(runs, 1)
	r.Source, r.Doc, r.Claim = "Source", "what it is", "a number"
	o := &Options{Out: t.TempDir(), Budget: Hour, Seeds: 3, Tune: true, Build: Build{Revision: "0123456789abcdef", Modified: true}}
	out, err := r.Run(t.Context(), o, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	out.Tables = []report.Table{{Title: "Numbers", Head: []string{"a", "b"}, Rows: [][]string{{"1", "2"}}, Note: "All of them."}, {Title: "Empty"}}
	var b strings.Builder
	if err := out.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"### counting", "Source: what it is", "`farfield-lab reproduce counting --budget hour --seeds 3 --tune`", "012345678 with changes", "- one 1\n- two 1\n",
		"| a | b |", "| 1 | 2 |", "All of them."} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "Empty") {
		t.Errorf("an empty table in\n%s", text)
	}
}

func TestDigits(t *testing.T) {
	for x, want := range map[float64]string{0: "0.000", 1234.5: "1234", 123.4: "123", 12.34: "12.3", 1.234: "1.23", 0.1234: "0.123", 0.0001234: "1.2e-04"} {
		if got := digits(x); got != want {
			t.Errorf("digits(%g) is %s, want %s", x, got, want)
		}
	}
}

// addResult puts the result of a piece where it is found.
func addResult(t *testing.T, r *Results, piece string, x any) {
	t.Helper()
	data, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	r.add(&Record{Piece: piece, Result: data})
}
