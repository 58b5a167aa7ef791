package exchange

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Updates make the fitted model closer to the trained one, at the same cost and on any number of threads,
// and train the near field with the far field of the mean, too. Each is kept where other windows say so.
func TestUpdatesOfFittedCells(t *testing.T) {
	for _, kind := range []model.Kind{model.Encoder, model.Decoder} {
		o := Options{Cells: number(16), Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: 12}
		w := windows(24, 96)
		run := func(o Options) *Result {
			x, err := untimed(t.Context(), subject(t, kind), Texts{Calibration: w[:18], HeldOut: w[18:]}, o)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a := run(o)
		threads := par.Threads()
		par.SetThreads(1)
		b := run(o)
		par.SetThreads(threads)
		if !reflect.DeepEqual(a.Numbers(), b.Numbers()) {
			t.Errorf("%s: two trainings differ", kind)
		}
		o.Updates = 0
		fitted := run(o)
		if a.Updates != 12 || len(a.Untuned) != 1 || a.Untuned[0].Loss() != fitted.Whole.Loss() || a.Unfitted[0].Loss() != fitted.Unfitted[0].Loss() {
			t.Errorf("%s: without updates the loss is %v, not %v", kind, a.Untuned, fitted.Whole)
		}
		if a.Whole.Loss() >= fitted.Whole.Loss() || a.ChoiceFLOPs != fitted.ChoiceFLOPs {
			t.Errorf("%s: %v after updates, %v before", kind, a.Whole, fitted.Whole)
		}
		_, near, _ := strings.Cut(a.UpdatesNote, "the rival, ")
		if back := strings.Contains(near, "taken back"); back != (a.NearFitted[0].Loss() == fitted.NearFitted[0].Loss()) || back == strings.Contains(near, "are kept") {
			t.Errorf("%s: near field %v after updates, %v before: %s", kind, a.NearFitted, fitted.NearFitted, near)
		}
		if page := string(a.Page("a model")); !strings.Contains(page, "12 updates trained the queries of cells on texts of the codebooks (15 windows)") || !strings.Contains(page, "| 16 cells, fitted, 12 updates |") {
			t.Errorf("%s: the page is %s", kind, page)
		}
	}
	_, err := untimed(t.Context(), subject(t, model.Decoder), texts(), Options{Cells: number(16), Length: 96, Updates: 3})
	if err == nil || !strings.Contains(err.Error(), "updates: 3, and fit is 0") {
		t.Errorf("updates without a fit: %v", err)
	}
}

// With a wish, updates lead to cheaper cells.
func TestUpdatesMakeCheaperCellsDo(t *testing.T) {
	run := func(updates int) *Result {
		x, err := untimed(t.Context(), subject(t, model.Decoder), texts(), Options{Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: updates, Wish: &Wish{Nats: 0.05}})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	fitted, tuned := run(0), run(12)
	if !tuned.Meets || tuned.ChoiceFLOPs > fitted.ChoiceFLOPs {
		t.Errorf("after updates %v meets %t, before %v %t", tuned.Choice, tuned.Meets, fitted.Choice, fitted.Meets)
	}
}

// Updates that lead to infinite numbers leave what was there before, and the run goes on.
func TestUpdatesThatFailAreTakenBack(t *testing.T) {
	o := Options{Cells: number(16), Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500}
	run := func(updates int) *Result {
		s, fails := subject(t, model.Decoder), false
		o.Updates = updates
		o.Say = func(text string, _ float64) { fails = strings.Contains(text, ", update 11 of") }
		s.Batch = func(_ context.Context, ids []int32) (*model.Batch, error) {
			if fails {
				fails = false
				return nil, fmt.Errorf("logits: %w", attention.ErrNonFinite)
			}
			return &model.Batch{B: 1, N: len(ids), Tokens: ids}, nil
		}
		x, err := untimed(t.Context(), s, texts(), o)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	want, got := run(0), run(12)
	if !reflect.DeepEqual(got.Numbers(), want.Numbers()) || got.Updates != 0 || got.Untuned != nil || got.NearFitted[0].Loss() != want.NearFitted[0].Loss() {
		t.Errorf("after failed updates %v, near field %v; without any %v and %v", got.Whole, got.NearFitted, want.Whole, want.NearFitted)
	}
	if page := string(got.Page("a model")); strings.Count(page, "taken back, since numbers became infinite") != 2 {
		t.Errorf("the page is %s", page)
	}
}

// twelveUpdates are one more than those after which a run speaks again.
func twelveUpdates() Options {
	return Options{Cells: number(16), Order: number(0), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: 12}
}

var trained struct {
	once sync.Once
	*Result
}

// trainedOnce is what twelveUpdates give that are neither interrupted nor saved.
func trainedOnce(t *testing.T) *Result {
	t.Helper()
	trained.once.Do(func() {
		x, err := untimed(t.Context(), subject(t, model.Decoder), texts(), twelveUpdates())
		if err != nil {
			t.Fatal(err)
		}
		if x.Updates != 12 {
			t.Fatalf("the updates are not kept: %s", x.UpdatesNote)
		}
		trained.Result = x
	})
	if trained.Result == nil {
		t.Fatal("the uninterrupted updates failed before")
	}
	return trained.Result
}

// Updates that are interrupted, of the cells and then of the near field, go on from where they were saved,
// to the same numbers.
func TestUpdatesGoOnAfterAnInterruption(t *testing.T) {
	o := twelveUpdates()
	run := func(stop string) (*Result, []string) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var said []string
		o.Say = func(text string, _ float64) {
			if strings.Contains(text, ", update ") {
				said = append(said, text)
			}
			if stop != "" && strings.HasPrefix(text, stop) {
				cancel()
			}
		}
		x, err := untimed(ctx, subject(t, model.Decoder), texts(), o)
		if stop != "" && ctx.Err() == nil || err != nil && !(stop != "" && errors.Is(err, context.Canceled)) {
			t.Fatalf("stopped at %q: %v", stop, err)
		}
		return x, said
	}
	const cells, near = "16 cells of order 0, block 8, window 4, fitted, update ", "near field with the far field of the mean, update "
	want := trainedOnce(t)
	o.UpdatesFolder = filepath.Join(t.TempDir(), "saved")
	run(cells + "11 of")
	run(near + "11 of")
	got, said := run("")
	if !reflect.DeepEqual(got.Numbers(), want.Numbers()) {
		t.Error("after interruptions the numbers are others")
	}
	if got.UpdatesNote != want.UpdatesNote || got.NearFitted[0].Loss() != want.NearFitted[0].Loss() {
		t.Errorf("after interruptions %s near field %v; without %s near field %v", got.UpdatesNote, got.NearFitted, want.UpdatesNote, want.NearFitted)
	}
	if !slices.Equal(said, []string{near + "11 of 12"}) {
		t.Errorf("the last run says %q", said)
	}
	o.Seed = 1 // other updates
	if _, said := run(cells + "11 of"); !slices.Equal(said, []string{cells + "1 of 12", cells + "11 of 12"}) {
		t.Errorf("with another seed %q", said)
	}
	list, err := filepath.Glob(o.UpdatesFolder + "/*")
	if err != nil || len(list) != 3 {
		t.Fatalf("saved are %v: %v", list, err)
	}
	for _, path := range list {
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := untimed(t.Context(), subject(t, model.Decoder), texts(), o); err == nil || !strings.Contains(err.Error(), o.UpdatesFolder) || !strings.Contains(err.Error(), "delete it to begin anew") {
		t.Errorf("a damaged file: %v", err)
	}
	if err := RemoveUpdates(o.UpdatesFolder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(o.UpdatesFolder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal the folder is there: %v", err)
	}
}

// Updates that cannot be saved are made all the same. A run says so once, and saves later ones.
func TestUpdatesThatCannotBeSaved(t *testing.T) {
	o, want := twelveUpdates(), trainedOnce(t)
	o.UpdatesFolder = filepath.Join(t.TempDir(), "saved")
	o.Say = func(text string, _ float64) {
		if strings.HasPrefix(text, "16 cells") && strings.Contains(text, ", update 11 of") {
			if err := os.WriteFile(o.UpdatesFolder, nil, 0o666); err != nil {
				t.Error(err)
			}
		}
	}
	var failures []error
	o.NotSaved = func(err error) { failures = append(failures, errors.Join(err, os.Remove(o.UpdatesFolder))) }
	got, err := untimed(t.Context(), subject(t, model.Decoder), texts(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Numbers(), want.Numbers()) {
		t.Error("without saving, the numbers are others")
	}
	if len(failures) != 1 || !strings.Contains(failures[0].Error(), "not a folder") {
		t.Errorf("failures: %v", failures)
	}
	if list, err := os.ReadDir(o.UpdatesFolder); err != nil || len(list) != 1 {
		t.Errorf("later updates are saved as %v: %v", list, err)
	}
}

// A save that fails is told once, and again only after one that succeeds.
func TestFailuresToSaveAreToldOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saved")
	f, told := &updatesFile{path: filepath.Join(path, "x"), learners: saved(1)}, 0
	r := &run{Options: Options{NotSaved: func(error) { told++ }}}
	for i, free := range []bool{true, false, false, false, true, false, false} {
		err := os.RemoveAll(path)
		if err == nil && !free {
			err = os.WriteFile(path, nil, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		r.saveUpdates(f, i, i)
		if r.notSaved == free {
			t.Errorf("save %d fails: %t", i, r.notSaved)
		}
	}
	if told != 2 {
		t.Errorf("%d failures are told, not 2", told)
	}
}

// saved returns a learner of a few numbers, all x.
func saved(x float32) []*learner {
	p := &param.Param{Name: "p", Shape: []int{3}, Data: []float32{x, x, x}, Grad: make([]float32, 3)}
	return []*learner{newLearner(p, nil, 20)}
}

// A file of saved updates that is damaged, or of other updates, is refused by its name, and leaves the
// numbers.
func TestSavedUpdatesAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("a", 64)+updatesSuffix)
	f := &updatesFile{path: path, learners: saved(1), most: 20}
	if err := f.save(20, 31); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	g := &updatesFile{path: path, learners: saved(2), most: 20}
	if updates, drawn, err := g.load(); err != nil || updates != 20 || drawn != 31 || g.learners[0].params.All()[0].Data[2] != 1 {
		t.Errorf("%d updates of %d windows: %v", updates, drawn, err)
	}
	for name, of := range map[string]struct {
		change func(b []byte) []byte
		want   string
	}{
		"an end":      {func(b []byte) []byte { return b[:100] }, ""},
		"no content":  {func([]byte) []byte { return nil }, ""},
		"a number":    {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "checksum"},
		"fewer":       {func(b []byte) []byte { return bytes.Replace(b, []byte(`"updates":"20"`), []byte(`"updates":"10"`), 1) }, "checksum"},
		"more":        {func(b []byte) []byte { return bytes.Replace(b, []byte(`"updates":"20"`), []byte(`"updates":"21"`), 1) }, "21 updates of 31 windows"},
		"no updates":  {func(b []byte) []byte { return bytes.Replace(b, []byte(`"updates":"20"`), []byte(`"updates":"2x"`), 1) }, "has no number of updates"},
		"another sum": {func(b []byte) []byte { return bytes.Replace(b, []byte(`"sha256":`), []byte(`"sha257":`), 1) }, "checksum"},
	} {
		if err := os.WriteFile(path, of.change(bytes.Clone(whole)), 0o666); err != nil {
			t.Fatal(err)
		}
		g := &updatesFile{path: path, learners: saved(2), most: 20}
		_, _, err := g.load()
		if err == nil || !strings.Contains(err.Error(), of.want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "delete it to begin anew") {
			t.Errorf("%s: error is %v, want %q", name, err, of.want)
		}
		if x := g.learners[0].params.All()[0].Data; x[0] != 2 || x[2] != 2 {
			t.Errorf("%s: the numbers are %v", name, x)
		}
	}
}

// Updates of another model, other cells or numbers, or other options have other files.
func TestNamesOfSavedUpdates(t *testing.T) {
	names := map[string]string{}
	for name, change := range map[string]func(r *run, l []*learner, of *training){
		"nothing":   func(*run, []*learner, *training) {},
		"weight":    func(r *run, _ []*learner, _ *training) { r.s.Model.Params().All()[3].Data[0]++ },
		"config":    func(r *run, _ []*learner, _ *training) { r.config.Context++ },
		"positions": func(r *run, _ []*learner, _ *training) { r.s.Positions = "interpolate" },
		"codebook":  func(r *run, _ []*learner, _ *training) { r.books[16][1][5]++ },
		"layers":    func(r *run, _ []*learner, _ *training) { r.layers = r.layers[:1] },
		"window":    func(r *run, _ []*learner, _ *training) { r.calibration[1][2]++ },
		"seed":      func(r *run, _ []*learner, _ *training) { r.Seed++ },
		"updates":   func(r *run, _ []*learner, _ *training) { r.Updates++ },
		"choice":    func(_ *run, _ []*learner, of *training) { of.choice.Window++ },
		"what":      func(_ *run, _ []*learner, of *training) { of.what = "near field" },
		"number":    func(_ *run, l []*learner, _ *training) { l[0].params.All()[0].Data[1]++ },
		"optimizer": func(_ *run, l []*learner, _ *training) { l[0].adam.Beta2 = 0.5 },
	} {
		s, l, of := subject(t, model.Decoder), saved(1), &training{what: "cells", choice: Choice{Cells: 16, Block: 8, Window: 4}}
		r := &run{Options: Options{Updates: 20, UpdatesFolder: "saved"}, s: s, config: s.Model.Config(), layers: []int{0, 1}, calibration: windows(3, 8),
			books: map[int]map[int][]float32{16: {0: make([]float32, 40), 1: make([]float32, 40)}, 32: {0: make([]float32, 80)}}}
		change(r, l, of)
		f, err := r.newUpdatesFile(l, of)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := names[f.path]; ok {
			t.Errorf("%s and %s have one file", name, other)
		}
		names[f.path] = name
		delete(r.books, 32) // of another choice
		if g, err := r.newUpdatesFile(l, of); err != nil || g.path != f.path {
			t.Errorf("%s: the name is %v, then %v: %v", name, f.path, g.path, err)
		}
	}
}

// The hash of numbers is of each and of how many they are, at the ends of its buffer too.
func TestHashOfFloats(t *testing.T) {
	sums := map[string]int{}
	for _, n := range []int{0, 1, 8189, 8190, 8191, 20000} {
		for at := range 2 {
			x := make([]float32, n)
			if at > 0 && n > 0 {
				x[n-1] = 1
			} else if at > 0 {
				continue
			}
			h := sha256.New()
			hashFloats(h, x)
			sums[string(h.Sum(nil))]++
		}
	}
	if len(sums) != 11 {
		t.Errorf("%d hashes of 11 lists", len(sums))
	}
}

// Only files that updates have saved are removed, and a folder with others is refused.
func TestFoldersOfUpdates(t *testing.T) {
	name := strings.Repeat("0a", 32) + updatesSuffix
	temp := ".farfield-" + strings.Repeat("A", 26) + ".tmp"
	for foreign, make := range map[string]func(path string) error{
		"":                                       nil,
		"notes.txt":                              func(path string) error { return os.WriteFile(path, nil, 0o666) },
		"model" + name:                           func(path string) error { return os.WriteFile(path, nil, 0o666) },
		strings.Repeat("0b", 32) + updatesSuffix: func(path string) error { return os.Mkdir(path, 0o777) },
	} {
		dir := filepath.Join(t.TempDir(), "saved")
		if err := errors.Join(CheckUpdatesFolder(dir), RemoveUpdates(dir), os.Mkdir(dir, 0o777), CheckUpdatesFolder(dir)); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{name, temp} {
			if err := os.WriteFile(filepath.Join(dir, own), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if foreign != "" {
			if err := make(filepath.Join(dir, foreign)); err != nil {
				t.Fatal(err)
			}
		}
		if err := CheckUpdatesFolder(dir); (err != nil) != (foreign != "") || err != nil && !strings.Contains(err.Error(), foreign) {
			t.Errorf("with %q: %v", foreign, err)
		}
		if err := RemoveUpdates(dir); err != nil {
			t.Errorf("with %q: %v", foreign, err)
		}
		_, err := os.Lstat(filepath.Join(dir, foreign))
		if isThere := err == nil; isThere != (foreign != "") {
			t.Errorf("with %q: it is there after the removal: %t", foreign, isThere)
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %q: updates are there after the removal: %v", foreign, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := CheckUpdatesFolder(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
	if err := RemoveUpdates(file); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(file); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
}

// Where no choice meets the wish, and the best is not fitted, the best fitted one is trained.
func TestUpdatesWhereTheBestIsNotFitted(t *testing.T) {
	x, err := untimed(t.Context(), subject(t, model.Encoder), texts(), Options{Cells: number(16), Block: number(8), Window: number(4), Length: 96, Fit: 500, Updates: 12, Wish: &Wish{Cosine: 0.9999999}})
	if err != nil {
		t.Fatal(err)
	}
	best := slices.MinFunc(x.Trials, func(a, b Trial) int { return cmp.Compare(a.loss(), b.loss()) })
	if best.Fitted || x.Choice != best.Choice || len(updated(x.Trials)) != 1 {
		t.Errorf("the choice is %v of %+v: %s", x.Choice, x.Trials, x.UpdatesNote)
	}
	if want := "12 updates were made of each of these: 16 cells of order 0, block 8, window 4, fitted."; !strings.HasPrefix(x.UpdatesNote, want) {
		t.Errorf("%s", x.UpdatesNote)
	}
	if !strings.Contains(string(x.Page("a model")), x.UpdatesNote) {
		t.Errorf("the page lacks %s", x.UpdatesNote)
	}
}

// updated returns the trials after updates.
func updated(list []Trial) []Trial {
	return slices.DeleteFunc(slices.Clone(list), func(t Trial) bool { return t.Updates == 0 })
}

func TestFirstToTune(t *testing.T) {
	trial := func(order int, tried bool, loss float64) Trial {
		return Trial{Choice: Choice{Order: order, Fitted: order == 0}, tried: tried, Quality: Quality{Nats: loss, isDecoder: true}}
	}
	list := []Trial{trial(0, false, 0), trial(0, true, 3), trial(1, true, 2), trial(0, true, 2.5), trial(0, false, 0), trial(2, true, 1), trial(0, true, 2)}
	for _, c := range []struct {
		best  int
		meets bool
		want  int
	}{{5, false, 6}, {5, true, 3}, {3, true, 3}, {3, false, 3}, {2, true, 1}, {2, false, 6}} {
		if got := firstToTune(list, &list[c.best], c.meets); got != c.want {
			t.Errorf("best %d, meets %t: %d is trained first, not %d", c.best, c.meets, got, c.want)
		}
	}
	list = []Trial{trial(0, false, 0), trial(0, false, 0), trial(1, true, 1)}
	if got := firstToTune(list, &list[2], true); got != 1 {
		t.Errorf("of untried choices %d is trained first, not the dearest", got)
	}
	if got := firstToTune(list[2:], &list[2], true); got != -1 {
		t.Errorf("a choice without fitted cells is trained: %d", got)
	}
}

// Windows that judge updates are others than those that updates draw, and such as the fit does not see.
func TestWindowsThatJudgeUpdates(t *testing.T) {
	all := windows(12, 8)
	for fit, want := range map[int]int{2: 2, 11: 1, 12: 0} {
		fitTo := spread(all, 8*fit)
		learn, judge := leaveOut(all, fitTo)
		unseen := 0
		for _, x := range judge {
			same := func(y []int32) bool { return &x[0] == &y[0] }
			if slices.ContainsFunc(learn, same) {
				t.Errorf("fit %d: a window is learned from and judges", fit)
			}
			if !slices.ContainsFunc(fitTo, same) {
				unseen++
			}
		}
		if len(learn) != 10 || len(judge) != 2 || unseen != want {
			t.Errorf("fit %d: %d windows teach, %d judge, of which the fit does not see %d", fit, len(learn), len(judge), unseen)
		}
	}
}

func TestUpdatesAreRefused(t *testing.T) {
	small := texts()
	small.Calibration = small.Calibration[:1]
	held := subject(t, model.Decoder)
	if err := held.Model.Compress(nn.Int8); err != nil {
		t.Fatal(err)
	}
	wide, err := model.New(model.Config{Kind: model.Decoder, Vocab: 1 << 17, Context: 96, Layers: 1, Width: 8, Heads: 1, Mechanism: "softmax", Positions: model.Rotary}, rng.New(1))
	if err != nil {
		t.Fatal(err)
	}
	long := texts()
	long.Calibration = [][]int32{make([]int32, 6000), make([]int32, 1)}
	for want, of := range map[string]struct {
		s       *Subject
		texts   Texts
		updates int
	}{
		"updates: -3":              {subject(t, model.Decoder), texts(), -3},
		"weights are held as int8": {held, texts(), 2},
		"have 1 window":            {subject(t, model.Decoder), small, 2},
		"6000 tokens of 131072":    {&Subject{Model: wide}, long, 2},
	} {
		_, err := untimed(t.Context(), of.s, of.texts, Options{Cells: number(16), Length: 96, Fit: 90, Updates: of.updates})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

// Rows beside the cells and empty cells neither change nor spoil the rate at which others learn.
func TestUpdatesLeaveEmptyRows(t *testing.T) {
	const n, d, cells, block = 160, 4, 16, 64
	far := make([]float64, cells*(1+2*d))
	for i := range far {
		if c := i / (1 + 2*d); c == 3 || c >= 12 {
			continue // empty
		}
		far[i] = 2 + math.Abs(rng.New(4).Normal(uint64(i)))
	}
	x := newFrozenFar(Choice{Cells: cells, Block: block, Window: 16}, 0, &cellMeans{cellQueries: &cellQueries{book: make([]float32, cells*d), cells: cells, d: d}, tilt: make([]float32, cells*d), queries: []float64{20}, far: [][]float64{far}}).(*frozenFar)
	if x.rows != block {
		t.Fatalf("%d rows", x.rows)
	}
	x.fade()
	c := &attention.Call{Causal: true, Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
	out, dout := tensor.NewHeads(1, 1, n, d), tensor.NewHeads(1, 1, n, d)
	for i, y := range [][]float32{c.Q.Data, c.K.Data, c.V.Data, dout.Data} {
		for j := range y {
			y[j] = float32(rng.New(uint64(i)).Normal(uint64(j)))
		}
	}
	before := map[string][]float32{}
	for _, p := range x.Params().All() {
		before[p.Name] = slices.Clone(p.Data)
		l := newLearner(p, x.live, 20)
		var sum, count float64
		for i, y := range p.Data {
			if row := i / (len(p.Data) / block); row < 12 && row != 3 {
				sum, count = sum+float64(y)*float64(y), count+1
			}
		}
		if want := updateRate * math.Sqrt(sum/count); math.Abs(l.schedule.Peak-want) > 1e-12*want {
			t.Errorf("%s: the rate rises to %g, not %g", p.Name, l.schedule.Peak, want)
		}
		keep := new(attention.Saved)
		if err := x.Forward(out, c, keep); err != nil {
			t.Fatal(err)
		}
		g := attention.Grads{DQ: tensor.NewHeads(1, 1, n, d), DK: tensor.NewHeads(1, 1, n, d), DV: tensor.NewHeads(1, 1, n, d)}
		x.Params().ZeroGrad()
		if err := x.Backward(&g, dout, out, c, keep); err != nil {
			t.Fatal(err)
		}
		l.adam.Step(l.schedule.Rate(updateWarmUp), 1)
		for i, y := range p.Data {
			row := i / (len(p.Data) / block)
			if changed := y != before[p.Name][i]; changed != (row < 12 && row != 3) {
				t.Errorf("%s: row %d changes: %t", p.Name, row, changed)
			}
		}
	}
}

// With blocks larger than the cells, the near field is trained as well.
func TestUpdatesOfFewCellsAndLargeBlocks(t *testing.T) {
	w := windows(9, 192)
	x, err := untimed(t.Context(), &Subject{Model: longer(t)}, Texts{Calibration: w[:6], HeldOut: w[6:]}, Options{Cells: number(16), Block: number(64), Window: number(16), Length: 192, Fit: 1000, Updates: 20})
	if err != nil {
		t.Fatal(err)
	}
	// A rate that padding made does not keep its updates.
	if strings.Contains(x.UpdatesNote, "infinite") || !(math.Abs(x.NearFitted[0].Loss()) < 1) {
		t.Errorf("near field %v: %s", x.NearFitted, x.UpdatesNote)
	}
}

// longer returns the model of subject for longer texts.
func longer(t *testing.T) *model.Model {
	m, err := model.New(model.Config{Kind: model.Decoder, Vocab: 31, Context: 192, Layers: 2, Width: 16, Heads: 4, KVHeads: 2, Mechanism: "softmax", Positions: model.Rotary}, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each window comes once before one comes again, in an order that the seed decides.
func TestDrawnWindows(t *testing.T) {
	r := &run{calibration: windows(5, 8)}
	counts := map[*int32]int{}
	for n := range 10 {
		counts[&r.drawWindow(n)[0]]++
		if n == 4 && len(counts) != 5 {
			t.Errorf("%d of 5 windows came in the first five", len(counts))
		}
	}
	for _, n := range counts {
		if n != 2 {
			t.Errorf("a window came %d times in ten", n)
		}
	}
}

// The gradients of both losses are their finite differences: the divergence of distributions, and 1 less
// the cosine.
func TestGradientsOfLosses(t *testing.T) {
	const n, width, h = 2, 5, 1e-2
	draw := func(seed uint64) []float32 {
		x := make([]float32, n*width)
		for i := range x {
			x[i] = float32(rng.New(seed).Normal(uint64(i)))
		}
		return x
	}
	for name, of := range map[string]struct {
		loss     func(x, y []float32) float64
		gradient func(x, y []float32)
	}{
		"divergence": {func(x, y []float32) (sum float64) {
			for i := range n {
				a, b := x[i*width:][:width], y[i*width:][:width]
				for j := range width {
					p := float64(b[j]) - logSum(b)
					sum += math.Exp(p) * (p - float64(a[j]) + logSum(a)) / n
				}
			}
			return sum
		}, func(x, y []float32) { divergence(x, y, width, 1) }},
		"cosine": {func(x, y []float32) (sum float64) {
			for i := range n {
				sum += (1 - cosine(x[i*width:][:width], y[i*width:][:width])) / n
			}
			return sum
		}, func(x, y []float32) {
			for i := range n {
				turn(x[i*width:][:width], y[i*width:][:width], 1.0/n)
			}
		}},
	} {
		x, y := draw(1), draw(2)
		got := draw(1)
		of.gradient(got, y)
		for i := range x {
			at := x[i]
			x[i] = at + h
			up := of.loss(x, y)
			x[i] = at - h
			want := (up - of.loss(x, y)) / (float64(at+h) - float64(at-h))
			x[i] = at
			// Third derivatives are below 1 here, so differences are off by less than h²/6.
			if math.Abs(float64(got[i])-want) > h*h/6+1e-6 {
				t.Errorf("%s: element %d is %g, by differences %g", name, i, got[i], want)
			}
		}
	}
}

// The gradients of the near field with a far field of the mean are finite differences.
func TestGradientsOfTheFarFieldOfTheMean(t *testing.T) {
	const n, d, cells, h = 20, 4, 5, 1e-2
	for _, causal := range []bool{false, true} {
		c := &attention.Call{Causal: causal, Q: tensor.NewHeads(1, 2, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
		c.Rope = attention.NewRope(d, 10000, 0, n)
		draw := func(x []float32, seed uint64) {
			for i := range x {
				x[i] = float32(rng.New(seed).Normal(uint64(i)))
			}
		}
		for i, x := range [][]float32{c.Q.Data, c.K.Data, c.V.Data} {
			draw(x, uint64(i))
		}
		far := make([]float64, cells*(1+2*d))
		for i := range far {
			far[i] = rng.New(4).Normal(uint64(i))
			if i%(1+2*d) == 0 {
				far[i] = 2 + math.Abs(far[i])
			}
		}
		x := newFrozenFar(Choice{Cells: cells, Block: 8, Window: 4}, 0, &cellMeans{cellQueries: &cellQueries{book: make([]float32, cells*d), cells: cells, d: d}, tilt: make([]float32, cells*d), queries: []float64{20}, far: [][]float64{far}}).(*frozenFar)
		out, dout := tensor.NewHeads(1, 2, n, d), tensor.NewHeads(1, 2, n, d)
		draw(dout.Data, 9)
		loss := func() (sum float64) {
			if err := x.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
			for i, y := range out.Data {
				sum += float64(y) * float64(dout.Data[i])
			}
			return sum
		}
		keep := new(attention.Saved)
		if err := x.Forward(out, c, keep); err != nil {
			t.Fatal(err)
		}
		g := attention.Grads{DQ: tensor.NewHeads(1, 2, n, d), DK: tensor.NewHeads(1, 1, n, d), DV: tensor.NewHeads(1, 1, n, d)}
		if err := x.Backward(&g, dout, out, c, keep); err != nil {
			t.Fatal(err)
		}
		for name, of := range map[string][2][]float32{
			"q": {c.Q.Data, g.DQ.Data}, "k": {c.K.Data, g.DK.Data}, "v": {c.V.Data, g.DV.Data},
			"keys": {x.keys.Data[:cells*d], x.keys.Grad}, "values": {x.values.Data[:cells*d], x.values.Grad}, "powers": {x.powers.Data[:cells], x.powers.Grad},
		} {
			for i := range of[0] {
				at := of[0][i]
				of[0][i] = at + h
				up := loss()
				of[0][i] = at - h
				want := (up - loss()) / (float64(at+h) - float64(at-h))
				of[0][i] = at
				// Sums of 160 products of numbers about 1 are rounded by 1e-6, differences by 1e-4; their third
				// derivatives of about 10 add h²·10/6.
				if math.Abs(float64(of[1][i])-want) > 4e-4 {
					t.Errorf("causal %t: the gradient of %s[%d] is %g, by differences %g", causal, name, i, of[1][i], want)
				}
			}
		}
	}
}
