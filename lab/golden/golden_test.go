package golden

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// shared is where the whole folders of golden files lie beside a checkout.
func shared(t *testing.T, folder string) string {
	t.Helper()
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", folder)
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no folder of golden files beside this checkout")
	}
	return dir
}

// hold runs a folder and fails for every case that does.
func hold(t *testing.T, dir string) []Case {
	t.Helper()
	var all []Case
	worst := map[string]float64{}
	err := Run(dir, func(c Case) {
		all = append(all, c)
		if c.Failed {
			t.Errorf("%s %s %s %s: %s %.3g tolerances %s", c.File, c.Name, c.Form, c.Precision, c.Worst, c.Err, c.Problem)
		}
		key := c.Mechanism + " " + c.Form + " " + c.Precision
		worst[key] = max(worst[key], c.Err)
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, e := range worst {
		t.Logf("%s: worst %.3f tolerances", key, e)
	}
	return all
}

func TestCommitted(t *testing.T) {
	poly := hold(t, filepath.Join("testdata", "poly"))
	zoo := hold(t, filepath.Join("testdata", "zoo"))
	compared := map[string]int{}
	for _, c := range append(poly, zoo...) {
		if c.Skipped == "" {
			compared[c.Mechanism+" "+c.Form]++
		}
	}
	// Cases × forms: nothing falls out of sight.
	for key, want := range map[string]int{
		"fastmax direct":     8 + 12 + 1 + 6, // paper, shapes, state, dropout
		"fastmax linear":     8 + 12 + 1 + 6,
		"fastmax step":       8 + 12 + 1 + 4,
		"fastmax state":      1,
		"taylorshift direct": 4,
		"taylorshift linear": 4,
		"taylorshift step":   4,
		"softmax direct":     2 + 2 + 1, // neighbours, zoo, two cross-attentions
		"softmax step":       2 + 1,
		"linear direct":      2,
		"linear linear":      2,
		"linear step":        2,
		"linear state":       1,
		"linformer direct":   2, // one with projections
		"retnet direct":      1,
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
		"luna direct":       1,
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

func TestShared(t *testing.T) {
	t.Run("poly", func(t *testing.T) { hold(t, shared(t, "poly")) })
	t.Run("zoo", func(t *testing.T) {
		idx, err := readIndex(filepath.Join(shared(t, "zoo"), "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range hold(t, shared(t, "zoo")) {
			group := idx[strings.TrimSuffix(c.File, ".npz")].Group
			if ours := slices.ContainsFunc(zooGroups, func(g zooGroup) bool { return g.name == group }); !ours {
				continue
			}
			if c.Skipped != notCompared[c.File] {
				t.Errorf("%s %s: skipped is %q", c.File, c.Name, c.Skipped)
			}
		}
	})
}

// notCompared are files of our groups that are not compared, and why.
var notCompared = map[string]string{
	"performer_orthogonal_features.npz":    "group performer: a projection alone, which mechanism.TestOrthogonalFeaturesMatchGoldenFile compares",
	"performer_softmax_causal.npz":         "group performer: a defect of the authors' program: the largest exponent of keys is over later ones, too",
	"performer_softmax_valuepad_quirk.npz": "group performer: a defect of the authors' program: keys beyond the length stay in the denominator",
	"nystrom_global_init.npz":              "group nystrom: " + couples,
	"nystrom_module_mask.npz":              "group nystrom: " + couples,
	"nystrom_module_nomask.npz":            "group nystrom: " + couples,
	"informer_prob_causal.npz":             "group informer: it is not causal: which queries are computed depends on later tokens",
	"improved_clustered_causal.npz":        "group clustered: it is not causal: clusters are made of later queries, too",
	"reformer_ft_causal_masked.npz":        "group reformer: " + leaksBorders,
	"reformer_ft_lengths.npz":              "group reformer: tokens beyond a length are sorted as zeros are, and average over each other",
	"reformer_lsh_r1_causal.npz":           "group reformer: " + leaksBorders,
	"reformer_lsh_r2_within_buckets.npz":   "group reformer: " + leaksBorders,
	"reformer_lsh_r4_causal.npz":           "group reformer: " + leaksBorders,
	"reformer_lsh_r4_nodup_causal.npz":     "group reformer: " + leaksBorders,
	"scatterbrain_lsh_h2.npz":              "group scatterbrain: sorted 2 times: one round is built here",
}

// The textbook itself against the files: it must be as exact as they are.
func TestTextbookAgreesWithGoldenFiles(t *testing.T) {
	dirs := []string{filepath.Join("testdata", "poly"), filepath.Join("testdata", "zoo")}
	for _, dir := range dirs {
		idx, _ := readIndex(filepath.Join(dir, "index.json"))
		paths, _ := filepath.Glob(filepath.Join(dir, "*.npz"))
		for _, path := range paths {
			f, err := openFile(path)
			if err != nil {
				t.Fatal(err)
			}
			problems, _ := polyCases(f)
			if f.hasArray("out") {
				problems, _ = zooCases(f, idx)
			}
			for _, p := range problems {
				if p.err != nil {
					t.Fatalf("%s %s: %v", f.base, p.name, p.err)
				}
				if p.compute != nil && p.headMatrix == nil {
					continue // of modules there is no textbook
				}
				agrees(t, f.base, p)
			}
			f.src.Close()
		}
	}
}

func agrees(t *testing.T, file string, p *problem) {
	t.Helper()
	r := p.solveReference()
	got := map[string][]float64{"o": r.O.Data, "den": r.Den}
	if p.do.Data != nil && p.headMatrix == nil {
		var g *oracle.Grads = p.book.Backward(&p.call, p.do)
		got["dq"], got["dk"], got["dv"], got["dtau"], got["dlog_g"] = g.DQ.Data, g.DK.Data, g.DV.Data, g.DTau, g.DLogG.Data
	}
	for _, e := range p.want {
		if p.headMatrix != nil && e.what != "o" {
			continue // textbooks of whole heads have no gradients
		}
		limit := 1e-13 * check.MaxAbs(r.Cond) * (1 + check.MaxAbs(e.ref))
		if e.what != "o" && e.what != "den" {
			limit *= 1 + check.MaxAbs(p.call.V.Data)*check.MaxAbs(p.do.Data)
		}
		if e.what == "den" {
			limit = max(limit, p.book.Eps) // unseen rows are stored as eps
		}
		if x := check.ErrorRatio(got[e.what], e.ref, limit); x > 1 {
			t.Errorf("%s %s: %s differs by %.1f limits", file, p.name, e.array, x)
		}
	}
}

// Files of other seeds, sizes, degrees and layouts are recognised by their
// arrays alone.
func TestOtherFilesNeedNoList(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	dir := t.TempDir()
	random := func(name string, shape ...int) (*array.Array, []float64) {
		n, _ := array.CountElements(shape)
		x, wide := make([]float32, n), make([]float64, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			wide[i] = float64(x[i])
		}
		a, err := array.New(name, x, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return a, wide
	}
	for i, shape := range [][]int{{9, 5}, {3, 4, 7}, {2, 2, 5, 1}} {
		q, qx := random("q", shape...)
		k, kx := random("k", shape...)
		v, vx := random("v", shape...)
		do, dox := random("do", shape...)
		full := append([]int{1, 1, 1}[:4-len(shape):3], shape...)
		heads := func(x []float64) oracle.Heads {
			return oracle.HeadsOf(x, full[0], full[1], full[2], full[3])
		}
		list := []*array.Array{q, k, v, do}
		for _, p := range []int{2, 6} {
			book := oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(p)}
			c := &oracle.Call{Q: heads(qx), K: heads(kx), V: heads(vx), Causal: true}
			f, g := book.Forward(c), book.Backward(c, heads(dox))
			for name, x := range map[string][]float64{"o": f.O.Data, "dq": g.DQ.Data, "dk": g.DK.Data, "dv": g.DV.Data} {
				a, err := array.New(fmt.Sprintf("%s_p%d_causal", name, p), x, shape...)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, a)
			}
		}
		var file bytes.Buffer
		if err := array.WriteNPZ(&file, list); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("seed%d.npz", i)), file.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(hold(t, dir)); n != 3*2*3 {
		t.Errorf("%d results, want those of 3 files, 2 cases, 3 forms", n)
	}
}

func TestBrokenFoldersAndFiles(t *testing.T) {
	none := func(Case) { t.Error("a case was reported") }
	if err := Run(t.TempDir(), none); err == nil || !strings.Contains(err.Error(), "holds no golden files") {
		t.Errorf("empty folder: %v", err)
	}
	if err := Run(filepath.Join(t.TempDir(), "absent"), none); err == nil {
		t.Error("absent folder: no error")
	}
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join("testdata", "poly", "state_p2_N7_D8.npz"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"torn.npz": data[:len(data)/2],
		"note.txt": []byte("not golden"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var cases []Case
	if err := Run(dir, func(c Case) { cases = append(cases, c) }); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 1 || !cases[0].Failed || cases[0].Problem == "" {
		t.Errorf("a torn file gives %+v", cases)
	}
	if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(`[{"name":"gone","group":"softmax"}]`), 0o666); err != nil {
		t.Fatal(err)
	}
	cases = nil
	if err := Run(dir, func(c Case) { cases = append(cases, c) }); err != nil {
		t.Fatal(err)
	}
	if len(cases) != 2 || cases[1].File != "gone.npz" || !cases[1].Failed {
		t.Errorf("a listed file that is not there gives %+v", cases)
	}
}

// A comparison that cannot fail shows nothing.
func TestWrongResultsFail(t *testing.T) {
	f, err := openFile(filepath.Join("testdata", "poly", "fastmax_paper_N7_D8.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.src.Close()
	p, _ := polyCase(f, "p2_causal")
	for i := range p.want {
		good := p.want[i].ref
		p.want[i].ref = append([]float64{}, good...)
		p.want[i].ref[len(good)/2] += 1e-3 * check.MaxAbs(good)
		for _, form := range []string{"direct", "linear"} {
			c := f.runFile(runForm(p, form))
			if !c.Failed || c.Worst != p.want[i].array {
				t.Errorf("%s in the %s form: an error of 1e-3 passes: %+v", p.want[i].array, form, c)
			}
		}
		p.want[i].ref[0] = math.NaN()
		if c := f.runFile(runForm(p, "direct")); !c.Failed || c.Err != math.MaxFloat64 {
			t.Errorf("%s: a NaN passes: %+v", p.want[i].array, c)
		}
		p.want[i].ref = good
	}
}
