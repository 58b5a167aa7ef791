package golden

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
)

// hold runs a folder, fails for every case that does, and returns the number of compared cases.
func hold(t *testing.T, dir string) (all []Case, compared int) {
	t.Helper()
	worst := map[string]float64{}
	err := Run(dir, func(c Case) {
		all = append(all, c)
		if c.Failed {
			t.Errorf("%s %s %s %s: %s %.3g tolerances %s", c.File, c.Name, c.Form, c.Precision, c.Worst, c.Err, c.Problem)
		}
		if c.Skipped == "" {
			compared++
			key := c.Mechanism + " " + c.Form + " " + c.Precision
			worst[key] = max(worst[key], c.Err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, e := range worst {
		t.Logf("%s: worst %.3f tolerances", key, e)
	}
	t.Logf("%s: %d cases compared", dir, compared)
	return all, compared
}

func TestCommitted(t *testing.T) {
	all, _ := hold(t, "testdata")
	compared := map[string]int{}
	for _, c := range all {
		if c.Skipped == "" {
			compared[c.Mechanism+" "+c.Form]++
		}
	}
	// Cases × forms: nothing falls out of sight.
	for key, want := range map[string]int{
		"fastmax direct":     8 + 12 + 2 + 6, // paper, shapes, state, dropout
		"fastmax linear":     8 + 12 + 2 + 6,
		"fastmax step":       8 + 12 + 2 + 4,
		"fastmax state":      1,
		"taylorshift direct": 4,
		"taylorshift linear": 4,
		"taylorshift step":   4,
		"softmax direct":     2 + 2 + 3, // neighbours, zoo, within modules of luna
		"softmax step":       2 + 1,
		"linear direct":      2 + 3, // and after three numbers of tokens
		"linear linear":      2 + 3,
		"linear step":        2,
		"linear state":       3,
		"linformer direct":   2, // one within a module
		"luna direct":        5*2 + 2,
		"luna step":          5 * 2,
		"retnet direct":      1,
		"retnet step":        1,
		"fourier direct":     1,
		"fourier step":       1,
		"local direct":       1,
		"local step":         1,
		"longformer direct":  1,

		"adaptive-span direct": 1,
		"adaptive-span step":   1,

		"based direct":      3, // neighbours, one with decay
		"based linear":      3,
		"based step":        3,
		"power direct":      3, // one with decay
		"power linear":      3,
		"power step":        3,
		"sata direct":       3,
		"sata linear":       3,
		"sata step":         3,
		"polynomial direct": 8 + 2*9, // authors of rows alone, and over all tokens
		"polynomial linear": 8 + 9,
		"polynomial step":   8,
		"nystrom direct":    1,
		"informer direct":   1,
		"eva direct":        2, // one causal
		"eva step":          1,

		"improved-clustered direct": 1,
		"reformer direct":           1,
		"scatterbrain direct":       1,
		"scatterbrain step":         1,
	} {
		if compared[key] != want {
			t.Errorf("%s: %d cases compared, want %d", key, compared[key], want)
		}
	}
}

// TestShared converts the whole fixtures, where they lie beside the checkout, and compares them.
func TestShared(t *testing.T) {
	fixtures := filepath.Join("..", "..", "..", "shared", "fixtures")
	if _, err := os.Stat(filepath.Join(fixtures, "zoo")); err != nil {
		t.Skip("no fixtures beside this checkout: the committed cases alone are compared")
	}
	dir := t.TempDir()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("no python3 converts the fixtures, the committed cases alone are compared: %v", err)
	}
	if text, err := exec.Command("python3", "convert.py", fixtures, dir).CombinedOutput(); err != nil {
		t.Fatalf("convert.py: %v %s", err, text)
	}
	all, compared := hold(t, dir)
	if want := 692 + 181; compared != want { // poly and zoo
		t.Errorf("%d cases compared, want %d", compared, want)
	}
	for _, c := range all {
		if want := notCompared[c.File]; c.Skipped != want && (want != "" || !strings.HasSuffix(c.Name, "_full") && !strings.HasSuffix(c.Name, "_causal")) {
			t.Errorf("%s %s: skipped is %q, want %q", c.File, c.Name, c.Skipped, want)
		}
	}
}

// notCompared are files that are not compared, and why.
var notCompared = map[string]string{
	"performer_orthogonal_features":    "group performer: a projection alone, which mechanism.TestOrthogonalFeaturesMatchGoldenFile compares",
	"performer_softmax_causal":         "group performer: a defect of the authors' program: the largest exponent of keys is over later ones, too",
	"performer_softmax_valuepad_quirk": "group performer: a defect of the authors' program: keys beyond the length stay in the denominator",
	"nystrom_global_init":              "group nystrom: " + couples,
	"nystrom_module_mask":              "group nystrom: " + couples,
	"nystrom_module_nomask":            "group nystrom: " + couples,
	"informer_prob_causal":             "group informer: it is not causal: which queries are computed depends on later tokens",
	"improved_clustered_causal":        "group clustered: it is not causal: clusters are made of later queries, too",
	"reformer_ft_causal_masked":        "group reformer: " + leaksBorders,
	"reformer_ft_lengths":              "group reformer: tokens beyond a length are sorted as zeros are, and average over each other",
	"reformer_lsh_r1_causal":           "group reformer: " + leaksBorders,
	"reformer_lsh_r2_within_buckets":   "group reformer: " + leaksBorders,
	"reformer_lsh_r4_causal":           "group reformer: " + leaksBorders,
	"reformer_lsh_r4_nodup_causal":     "group reformer: " + leaksBorders,
	"scatterbrain_lsh_h2":              "group scatterbrain: sorted 2 times: one round is built here",
}

const (
	couples      = "its pseudo-inverse starts from a number of the whole batch, so that rows depend on each other"
	leaksBorders = "it is not causal: sorting moves the borders of chunks by later tokens, too"
)

// The textbook itself against the files: it must be as exact as they are.
func TestTextbookAgreesWithGoldenFiles(t *testing.T) {
	eachProblem(t, func(file string, p *problem) {
		if p.Book == nil {
			return
		}
		c, do := p.textbookCall(), p.heads("do")
		r, g := p.solve(), &oracle.Grads{}
		if do.Data != nil && slices.ContainsFunc(p.Want, isGradient) {
			g = p.textbook().Backward(&c, do)
		}
		got := map[string][]float64{"o": r.O.Data, "den": r.Den, "dq": g.DQ.Data, "dk": g.DK.Data, "dv": g.DV.Data, "dtau": g.DTau, "dlog_g": g.DLogG.Data}
		for _, what := range p.Want {
			ref := p.floats(what)
			limit := 1e-13 * check.MaxAbs(r.Cond) * (1 + check.MaxAbs(ref))
			if isGradient(what) {
				limit *= 1 + check.MaxAbs(c.V.Data)*check.MaxAbs(do.Data)
			}
			if x := check.ErrorRatio(got[what], ref, limit); x > 1 {
				t.Errorf("%s %s: %s differs by %.1f limits", file, p.Name, what, x)
			}
		}
	})
}

// eachProblem calls f with every committed case that is compared.
func eachProblem(t *testing.T, f func(file string, p *problem)) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no committed files: ", err)
	}
	for _, path := range paths {
		list, closer, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if p.Skip == "" {
				f(filepath.Base(path), p)
			}
		}
		closer()
	}
}

func TestBrokenFoldersAndFiles(t *testing.T) {
	none := func(Case) { t.Error("a case was reported") }
	if err := Run(t.TempDir(), none); err == nil || !strings.Contains(err.Error(), "holds no golden files") {
		t.Errorf("empty folder: %v", err)
	}
	data, err := os.ReadFile(filepath.Join("testdata", "state_p2_N7_D8.npz"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.json": `[{"case":"a","mechanism":"softmax","forms":["direct"],"want":["o"]}]`, "a.npz": string(data[:len(data)/2]),
		"b.json": `[{"case":"b","mechanism":"softmax","forms":["direct"],"want":["o"]}]`,
		"c.json": `[{"case":"c","mechanismus":"softmax"}]`,
		"e.json": `[{"case":"x","skip":"it is broken"},null]`, "f.json": `[]`, "g.json": `[{"case":"g","mechanism":"softmax","want":["o"]}]`,
		"h.json": `[{"case":"h","mechanism":"retnet","layer":true,"forms":["round"],"want":["o"]}]`, "h.npz": string(data),
		"d.json": `[{"case":"last","mechanism":"fastmax","forms":["direct","round"],"want":["o","dlog_g"],"tolerance":[1,1]},{"case":"x","skip":"it is broken"}]`, "d.npz": string(data),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	if err := Run(dir, func(c Case) {
		if c.Failed != (c.Skipped == "") {
			t.Errorf("%+v", c)
		}
		got = append(got, c.Problem+c.Skipped)
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"not a readable .npz", "b.npz", `unknown field "[0].mechanismus"`, "dlog_g: has 0 elements", `forms: "round" is unknown`, "it is broken",
		"case 1: is null", "has no cases", `case 0, "g": forms: is empty`, `forms: "round" is unknown`} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("problems are %q, want one with %q at %d", got, want, i)
		}
	}
}

// A comparison that cannot fail shows nothing.
func TestWrongResultsFail(t *testing.T) {
	const name = "fastmax_paper_N7_D8"
	for _, what := range []string{"o", "den", "dq", "dk", "dv"} {
		for form, change := range map[string]func(x []float64){
			"direct": func(x []float64) { x[len(x)/2] += 1e-3 * check.MaxAbs(x) },
			"linear": func(x []float64) { x[len(x)/2] += 1e-3 * check.MaxAbs(x) },
			"step":   func(x []float64) { x[0] = math.Inf(1) },
		} {
			dir := t.TempDir()
			arrays := readArrays(t, name)
			for _, a := range arrays {
				if a.Name == "p2_causal."+what {
					x, err := a.Float64()
					if err != nil {
						t.Fatal(err)
					}
					change(x)
				}
			}
			if form == "step" && what != "o" {
				continue // not compared
			}
			writeFile(t, dir, name, arrays)
			if c := caseOf(t, dir, "p2_causal", form); !c.Failed || c.Worst != what {
				t.Errorf("%s in the %s form: an error passes: %+v", what, form, c)
			}
		}
	}
}

// A NaN excludes its element alone.
func TestNaNExcludesItsElement(t *testing.T) {
	const name = "fastmax_paper_N7_D8"
	for _, x := range []struct {
		count, wrong int // NaNs, and wrong numbers after them
		problem      string
	}{{1, 0, ""}, {1, 1, ""}, {56, 0, "o: has no numbers"}} {
		dir, arrays := t.TempDir(), readArrays(t, name)
		for _, a := range arrays {
			if o, err := a.Float64(); err == nil && a.Name == "p2_causal.o" {
				for i := range x.count {
					o[i] = math.NaN()
				}
				for i := range x.wrong {
					o[x.count+i] += 1e-3 * check.MaxAbs(o[x.count:])
				}
			}
		}
		writeFile(t, dir, name, arrays)
		text := strings.ReplaceAll(string(must(os.ReadFile(filepath.Join(dir, name+".json")))), `"book":`, `"tolerance":[1e-4,1e-4],"book":`)
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if c := caseOf(t, dir, "p2_causal", "direct"); c.Problem != x.problem || c.Failed != (x.wrong > 0 || x.problem != "") {
			t.Errorf("%d NaNs and %d wrong numbers: %+v, want %q", x.count, x.wrong, c, x.problem)
		}
	}
}

// caseOf runs a folder and returns a case in a form.
func caseOf(t *testing.T, dir, name, form string) Case {
	t.Helper()
	all := runAll(t, dir)
	i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name && c.Form == form })
	if i < 0 {
		t.Fatalf("there is no case %s in the %s form", name, form)
	}
	return all[i]
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func runAll(t *testing.T, dir string) (all []Case) {
	t.Helper()
	if err := Run(dir, func(c Case) { all = append(all, c) }); err != nil {
		t.Fatal(err)
	}
	return all
}

// readArrays returns the arrays of a committed file.
func readArrays(t *testing.T, name string) (list []*array.Array) {
	t.Helper()
	f, err := array.OpenNPZ(filepath.Join("testdata", name+".npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Names() {
		a, err := f.ReadArray(x)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// writeFile writes the cases of a committed file beside other arrays.
func writeFile(t *testing.T, dir, name string, arrays []*array.Array) {
	t.Helper()
	cases, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	var data bytes.Buffer
	if err == nil {
		err = array.WriteNPZ(&data, arrays)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".json"), cases, 0o666)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".npz"), data.Bytes(), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A golden file that lacks an array, or has one of another shape or type, is no reason to crash.
func TestFilesThatDoNotFit(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.npz"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	for i, path := range paths {
		if !suite.IsLong() && i%4 != 0 {
			continue
		}
		name := strings.TrimSuffix(filepath.Base(path), ".npz")
		arrays, dir := readArrays(t, name), t.TempDir()
		try := func(list []*array.Array, what string) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%s, %s: %v", name, what, r)
				}
			}()
			writeFile(t, dir, name, list)
			runAll(t, dir)
		}
		for j, a := range arrays {
			if _, of, isOwn := strings.Cut(a.Name, "."); isOwn && (of == "o" || strings.HasPrefix(of, "d")) {
				continue // results are many, and alike
			}
			try(slices.Delete(slices.Clone(arrays), j, j+1), "without "+a.Name)
			for what, other := range map[string]func() (*array.Array, error){
				"scalar": func() (*array.Array, error) { return array.New(a.Name, []float64{1}) },
				"empty":  func() (*array.Array, error) { return array.New(a.Name, []float64{}, 2, 0, 3) },
				"long":   func() (*array.Array, error) { return array.New(a.Name, make([]float64, 1024), 1024) },
				"zeros":  func() (*array.Array, error) { return array.New(a.Name, []int64{0, 0, 0, 0}, 1, 2, 2, 1) },
			} {
				x, err := other()
				if err != nil {
					t.Fatal(err)
				}
				changed := slices.Clone(arrays)
				changed[j] = x
				try(changed, a.Name+" is "+what)
			}
		}
	}
}

// FuzzFolder holds any bytes as a golden file. A file that does not fit is a failed case.
func FuzzFolder(f *testing.F) {
	const name = "linear_causal_keypad"
	cases, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join("testdata", name+".npz"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(cases, data)
	f.Add([]byte(`[]`), []byte("PK"))
	f.Add([]byte(`[{"case":"a","mechanism":"retnet","layer":true,"heads":2,"forms":["step"]},{"case":"b","model":{},"forms":["direct"]}]`), data)
	f.Fuzz(func(t *testing.T, cases, data []byte) {
		if len(data) > 1<<16 {
			return // what is computed takes the time that its shapes ask for
		}
		dir := t.TempDir()
		for name, b := range map[string][]byte{"a.json": cases, "a.npz": data} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		_ = Run(dir, func(Case) {})
	})
}
