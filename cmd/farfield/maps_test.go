package main

import (
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/maps"
)

func TestMapsOfArrays(t *testing.T) {
	t.Parallel()
	in := written(t, "in.npz", normal(t, "q", 1, 2, 6, 4), normal(t, "k", 2, 2, 9, 4))
	dir := t.TempDir()
	picture, numbers := filepath.Join(dir, "maps.png"), filepath.Join(dir, "maps.npz")
	out := works(t, "maps", "--mechanism", "softmax,fastmax", "--order", "2", "--causal", "--rows", "2:5", "--heads", "1", "--most", "4",
		"-o", picture, "--npz", numbers, "--json", in)
	var list []maps.Map
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Source != "softmax" || list[1].Source != "fastmax" || list[1].Head != 1 || list[0].Queries != 3 || !(list[0].Entropy > 0) {
		t.Fatalf("%s", out)
	}
	for name, a := range read(t, numbers) {
		x, err := a.Float32()
		if err != nil || len(a.Shape) != 3 || a.Shape[0] != 1 || a.Shape[1] != 3 || a.Shape[2] != 9 {
			t.Fatalf("%s is %v, %v", name, a.Shape, err)
		}
		for i := range 3 { // query 2+i sees keys up to 2+i+3, and its weights are shares
			var sum float64
			for j, w := range x[i*9:][:9] {
				sum += float64(w)
				if j > 5+i && w != 0 {
					t.Errorf("%s: query %d sees key %d", name, 2+i, j)
				}
			}
			if math.Abs(sum-1) > 1e-5 {
				t.Errorf("%s: the weights of query %d add up to %g", name, 2+i, sum)
			}
		}
	}
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}

	for want, args := range map[string][]string{
		"needs --model with --text or --sample, or --mechanism": {in},
		"--heads: \"2\" is none of the 2":                       {"--mechanism", "softmax", "--heads", "2", in},
		"--rows: 3:9 is no A:B":                                 {"--mechanism", "softmax", "--rows", "3:9", in},
		"is a setting of none of":                               {"--mechanism", "softmax,fastmax", "--set", "colour=red", in},
		"softmax: order 3: it has no order":                     {"--mechanism", "softmax,linear", "--order", "3", in},
		"softmax is there twice":                                {"--mechanism", "softmax,softmax", in},
		"needs .png, .svg or .html":                             {"--mechanism", "softmax", "-o", "maps.gif", in},
		"--row: 1 is none of the 1":                             {"--mechanism", "softmax", "--row", "1", in},
		"no attention matrix":                                   {"--mechanism", "primal", in},
		"--most: 0 is less than 1":                              {"--mechanism", "softmax", "--most", "0", in},
	} {
		refuses(t, want, append([]string{"maps"}, args...)...)
	}
}

func TestMapsOfModels(t *testing.T) {
	t.Parallel()
	run := trained(t)
	page, numbers := filepath.Join(t.TempDir(), "maps.html"), filepath.Join(t.TempDir(), "maps.npz")
	out := works(t, "maps", "--model", run, "--model", run, "--text", "a text\nto <read>", "--layers", "1", "-o", page, "--npz", numbers)
	if strings.Count(out, "layers.1.attn") != 4 || strings.Contains(out, "layers.0.attn") {
		t.Errorf("two heads of layer 1 of two models are not what is shown:\n%s", out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"layers.1.attn", ">¶<", ">x<", "&lt;"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %s", want)
		}
	}
	all := read(t, numbers)
	if len(all) != 2 {
		t.Errorf("%d arrays, want one for each model", len(all))
	}
	for name, a := range all {
		if len(a.Shape) != 3 || a.Shape[0] != 2 || a.Shape[1] != 16 || a.Shape[2] != 16 {
			t.Errorf("%s is %v, want [2 16 16]", name, a.Shape)
		}
	}
	if !strings.Contains(string(text), "Colours of all maps") || !strings.Contains(string(text), "One scale for all") {
		t.Error("maps do not share their colours, or the page does not say so")
	}
	works(t, "maps", "--model", run, "--text", "a text", "--own-scales", "-o", page)
	if text, err := os.ReadFile(page); err != nil || strings.Contains(string(text), "One scale for all") {
		t.Errorf("maps share a scale with --own-scales, %v", err)
	}
	refuses(t, "needs --text, --text-file or --sample", "maps", "--model", run)
	refuses(t, "--layers: \"7\" is none of the", "maps", "--model", run, "--text", "a", "--layers", "7")
	refuses(t, "a layer of --model has one", "maps", "--model", run, "--text", "a", "--mechanism", "softmax,fastmax")
	refuses(t, "has its own input and mask", "maps", "--model", run, "--text", "a", "--causal")

	mamba := filepath.Join(t.TempDir(), "run")
	works(t, littleRun(textFile(t), mamba, "--mechanism", "mamba-2")...)
	refuses(t, "mixer is mamba-2, which has no attention matrix", "maps", "--model", mamba, "--text", "a")
}

// TestMapsOfSamples has a model read a sample of its task: of images the image is
// drawn beside, of pairs both parts.
func TestMapsOfSamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run, folder := filepath.Join(dir, "run"), filepath.Join(dir, "data")
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	images := make([]byte, 40*1025) // a label and the pixels of each
	for i := range images {
		images[i] = byte(i / 1025 % 2)
	}
	write("pathfinder32/contour14.bin", images)
	works(t, "train", "--task", "pathfinder", "--folder", folder, "--out", run, "--layers", "1", "--width", "8", "--heads", "2",
		"--batch", "1", "--steps", "1", "--eval-samples", "1", "--final-samples", "1")
	page, numbers := filepath.Join(dir, "maps.html"), filepath.Join(dir, "maps.npz")
	if out := works(t, "maps", "--model", run, "--folder", folder, "--sample", "3", "--rows", "0:40", "-o", page, "--npz", numbers); strings.Count(out, "layers.0.attn") != 2 {
		t.Errorf("two heads are not what is shown:\n%s", out)
	}
	for name, a := range read(t, numbers) {
		if len(a.Shape) != 3 || a.Shape[1] != 40 || a.Shape[2] != 1024 {
			t.Errorf("%s is %v, want 40 queries of 1024 keys", name, a.Shape)
		}
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "sample 3, class ") {
		t.Errorf("the page has no image, %v", err)
	}

	// Parts of a pair differ in length; padding is neither asked nor seen.
	var reviews strings.Builder
	for i := range 60 {
		fmt.Fprintf(&reviews, "%d\t%d_1\ttt%02d\t%s\n", i%2, i, i/2, strings.Repeat("a ", 3+i%2*4)+"film")
	}
	pairs := filepath.Join(dir, "pairs")
	write("imdb/imdb_train.tsv", []byte(reviews.String()))
	write("imdb/imdb_test.tsv", []byte(reviews.String()))
	works(t, "train", "--task", "films", "--folder", folder, "--task-set", "length=18", "--out", pairs, "--layers", "1", "--width", "8", "--heads", "1",
		"--batch", "2", "--steps", "1", "--eval-samples", "1", "--final-samples", "1")
	seen := map[int]bool{}
	for i := range 6 {
		works(t, "maps", "--model", pairs, "--folder", folder, "--sample", fmt.Sprint(i), "--npz", numbers)
		for name, a := range read(t, numbers) {
			if len(a.Shape) != 3 || a.Shape[1] != a.Shape[2] {
				t.Errorf("%s is %v", name, a.Shape)
			}
			seen[a.Shape[1]] = true
			x, err := a.Float32()
			if err != nil {
				t.Fatal(err)
			}
			var sum float64
			for _, w := range x {
				sum += float64(w)
			}
			if n := float64(a.Shape[1]); math.Abs(sum-n) > 1e-3 {
				t.Errorf("%s: weights of %g queries add up to %g", name, n, sum)
			}
		}
	}
	if !seen[10] || !seen[18] || len(seen) != 2 {
		t.Errorf("parts have %v positions, want 10 and 18", seen)
	}

	text := trained(t)
	if out := works(t, "maps", "--model", text, "--sample", "0", "--layers", "0", "--json"); !strings.Contains(out, `"queries": 20`) {
		t.Errorf("a window of the text is not what is read:\n%s", out)
	}
	refuses(t, "--sample: ", "maps", "--model", text, "--sample", "1000000")
	refuses(t, "--sample: ", "maps", "--model", run, "--folder", folder, "--sample", "-1")
	refuses(t, "--sample shows it one of its task", "maps", "--model", run, "--text", "a")
}

// Arrays without elements, and weights beyond the range of numbers.
func TestMapsWithoutWeights(t *testing.T) {
	t.Parallel()
	picture := filepath.Join(t.TempDir(), "maps.png")
	none := written(t, "in.npz", made(t, "q", []float32{}, 0, 5, 4), made(t, "k", []float32{}, 0, 5, 4))
	empty := written(t, "in.npz", made(t, "q", []float32{}, 1, 0, 4), made(t, "k", []float32{}, 1, 0, 4))
	large := make([]float32, 20)
	for i := range large {
		large[i] = math.MaxFloat32
	}
	for _, in := range []string{none, empty} {
		refuses(t, "--out: there are no heads, queries or keys to draw", "maps", "--mechanism", "fastmax,softmax", "-o", picture, in)
	}
	if out := works(t, "maps", "--mechanism", "fastmax", "--json", none); out != "[]\n" {
		t.Errorf("%q", out)
	}
	large[1], large[6] = -large[1], -large[6]
	in := written(t, "in.npz", made(t, "q", large, 1, 5, 4), made(t, "k", large, 1, 5, 4), made(t, "v", large, 1, 5, 4))
	if status, _, errs := command(t, "maps", "--mechanism", "fastmax", "--json", in); status != 1 || !strings.Contains(errs, "rows of weights are not finite") {
		t.Errorf("status %d, %q", status, errs)
	}
}
