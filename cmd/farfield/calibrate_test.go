package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/calibrate"
)

// What calibrate writes is what attend reads, and a model that is calibrated is
// one that other verbs take.
func TestCalibrate(t *testing.T) {
	in := written(t, "in.npz", normal(t, "q", 1, 2, 40, 5), normal(t, "k", 2, 2, 40, 5), normal(t, "v", 3, 2, 40, 3))
	dir := t.TempDir()
	arrays, o := filepath.Join(dir, "arrays.npz"), filepath.Join(dir, "o.npz")
	out := works(t, "calibrate", "--set", "keep=11", "--causal", "--json", in, arrays)
	var r calibrate.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Heads) != 2 || r.Heads[1].Head != 1 || r.Heads[0].Monomials != 11 || r.Heads[0].AllMonomials != 126 || !(r.Heads[0].Bound >= r.Heads[0].Truncation.MaxDropped) {
		t.Errorf("%s", out)
	}
	if a := read(t, arrays)["monomials"]; a == nil || len(a.Shape) != 3 || a.Shape[0] != 2 || a.Shape[1] != 11 || a.Shape[2] != 4 {
		t.Errorf("monomials are %v", a)
	}
	works(t, "attend", "--mechanism", "fastmax-truncated", "--causal", arrays, o)
	if a := read(t, o)["o"]; a == nil {
		t.Error("attend writes no o")
	}

	mask := append(make([]bool, 39), true)
	in = written(t, "in.npz", normal(t, "q", 1, 2, 40, 5), normal(t, "k", 2, 2, 40, 5), normal(t, "v", 3, 2, 40, 3), made(t, "keymask", mask, 40))
	works(t, "calibrate", "--set", "keep=11", in, arrays)
	if a := read(t, arrays)["keymask"]; a == nil {
		t.Error("the mask is dropped")
	} else if got, err := a.Bool(); err != nil || !slices.Equal(got, mask) {
		t.Errorf("the mask is %v, %v", got, err)
	}

	run, to, text := trained(t), filepath.Join(dir, "model"), textFile(t)
	out = works(t, "calibrate", "--model", run, "--tokens", "300", "--to", to)
	for _, want := range []string{"loss of the model", "layers.0.attn", "mean"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out := works(t, "eval", "--model", to, "--data", text); !strings.Contains(out, "loss") {
		t.Error(out)
	}
	works(t, "generate", "--model", to, "--tokens", "5", "--prompt", "a")
	refuses(t, "is not empty", "calibrate", "--model", run, "--to", to)
	refuses(t, "needs --model, or a file", "calibrate", in)
	refuses(t, "--to: ", "calibrate", "--model", run, "--to", text)
	refuses(t, "need --model", "calibrate", "--to", to, in, arrays)
	refuses(t, "--tokens: need --model", "calibrate", "--tokens", "8", in, arrays)
	refuses(t, "--causal: is of arrays", "calibrate", "--model", run, "--causal")
	refuses(t, "needs a whole number from 1 to 126", "calibrate", "--set", "keep=127", in, arrays)
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
}
