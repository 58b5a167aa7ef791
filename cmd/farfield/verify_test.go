package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/lab/golden"
	"github.com/farfield-ml/farfield/internal/lab/oracle"
	"github.com/farfield-ml/farfield/tensor"
)

// goldenFolder holds one case of fastmax of order 2, with one number of the
// textbook's output off by wrong.
func goldenFolder(t *testing.T, wrong float64) string {
	t.Helper()
	const n, d = 6, 4
	q, k, v := random(1, n*d), random(2, n*d), random(3, n*d)
	heads := func(x []float32) tensor.Heads[float64] { return tensor.HeadsOf(wide(x), 1, 1, n, d) }
	book := oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}
	o := slices.Clone(book.Forward(&oracle.Call{Q: heads(q), K: heads(k), V: heads(v)}).O.Data)
	o[3] += wrong
	return filepath.Dir(written(t, "fastmax_paper_N6_D4.npz",
		made(t, "q", q, n, d), made(t, "k", k, n, d), made(t, "v", v, n, d), made(t, "o_p2_full", o, n, d)))
}

func TestVerify(t *testing.T) {
	out := works(t, "verify", goldenFolder(t, 0))
	for _, form := range []string{"direct", "linear", "step"} {
		if !strings.Contains(out, "ok    fastmax_paper_N6_D4.npz p2_full "+form+" float32: error ") {
			t.Errorf("no line of the %s form:\n%s", form, out)
		}
	}
	if !strings.HasSuffix(out, "3 compared, 0 failed, 0 skipped\n") {
		t.Errorf("the total is missing:\n%s", out)
	}
}

func TestVerifyFails(t *testing.T) {
	dir := goldenFolder(t, 1e-3)
	status, out, errs := command(t, "verify", dir)
	if status != statusFailure || !strings.Contains(out, "FAIL  fastmax_paper_N6_D4.npz p2_full direct float32: error ") || !strings.Contains(errs, "3 of 3 compared cases failed") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	status, out, _ = command(t, "verify", "--json", "--precision", "f64", dir)
	var r struct {
		Cases []golden.Case
		Total caseCounts
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if status != statusFailure || len(r.Cases) != 6 || r.Total != (caseCounts{Compared: 6, Failed: 6}) {
		t.Errorf("status %d, %d cases, %+v", status, len(r.Cases), r.Total)
	}
}

// TestVerifyShared runs the shared fixtures where they are.
func TestVerifyShared(t *testing.T) {
	dir := filepath.Join("..", "..", "..", "shared", "fixtures", "zoo")
	if _, err := os.Stat(dir); err != nil {
		t.Skip(err)
	}
	if out := works(t, "verify", dir); !strings.Contains(out, "skip  improved_clustered_causal.npz: group clustered: ") {
		t.Errorf("what is not served is not named:\n%s", out)
	}
}
