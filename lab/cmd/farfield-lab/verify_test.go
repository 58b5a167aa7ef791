package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/lab/golden"
	"github.com/farfield-ml/farfield/rng"
)

// command runs the program as from a shell, without a terminal.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = laboratory().RunVerb(args, &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return status, out.String(), errs.String()
}

// works runs a command that must succeed, and returns what it prints.
func works(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := command(t, args...)
	if status != 0 {
		t.Fatalf("farfield-lab %s: status %d: %s", strings.Join(args, " "), status, errs)
	}
	return out
}

// refuses runs a command that must leave with status 2 and one line that holds want.
func refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	status, out, errs := command(t, args...)
	if status != env.StatusInput || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, want) {
		t.Errorf("farfield-lab %s: status %d\nstdout %q\nstderr %q\nwant %q", strings.Join(args, " "), status, out, errs, want)
	}
}

// goldenFolder holds one case of fastmax of order 2, with one number of the textbook's output off by wrong.
func goldenFolder(t *testing.T, wrong float64) string {
	t.Helper()
	const n, d = 6, 4
	random := func(key uint64) []float64 {
		x := make([]float64, n*d)
		for i := range x {
			x[i] = float64(float32(2*rng.New(key).Float64(uint64(i)) - 1))
		}
		return x
	}
	q, k, v := random(1), random(2), random(3)
	heads := func(x []float64) oracle.Heads { return oracle.HeadsOf(x, 1, 1, n, d) }
	book := oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}
	o := slices.Clone(book.Forward(&oracle.Call{Q: heads(q), K: heads(k), V: heads(v)}).O.Data)
	o[3] += wrong
	var list []*array.Array
	for name, data := range map[string][]float64{"q": q, "k": k, "v": v, "full.o": o} {
		a, err := array.New(name, data, n, d)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "drawn.npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := array.WriteNPZ(file, list); err != nil {
		t.Fatal(err)
	}
	const cases = `[{"case":"full","mechanism":"fastmax","order":2,"forms":["direct","linear","step"],"want":["o"],"book":{"norm":"standard","scale":1,"coef":[1,1,0.5]}},
		{"case":"other","skip":"it is another"}]`
	if err := os.WriteFile(filepath.Join(dir, "drawn.json"), []byte(cases), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestVerify(t *testing.T) {
	dir := goldenFolder(t, 0)
	out := works(t, "verify", dir)
	for _, form := range []string{"direct", "linear", "step"} {
		if !strings.Contains(out, "ok    drawn full "+form+" float32: error ") {
			t.Errorf("no line of the %s form:\n%s", form, out)
		}
	}
	if !strings.HasSuffix(out, "skip  drawn other: it is another\n"+dir+": 3 compared, 0 failed, 1 skipped\n") {
		t.Errorf("the total is missing:\n%s", out)
	}
}

func TestVerifyFails(t *testing.T) {
	dir := goldenFolder(t, 1e-3)
	status, out, errs := command(t, "verify", dir)
	if status != env.StatusFailure || !strings.Contains(out, "FAIL  drawn full direct float32: error ") || !strings.Contains(errs, "3 of 3 compared cases failed") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	status, out, _ = command(t, "verify", "--json", dir)
	var r struct {
		Cases []golden.Case
		Total caseCounts
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if status != env.StatusFailure || len(r.Cases) != 4 || r.Total != (caseCounts{Compared: 3, Skipped: 1, Failed: 3}) {
		t.Errorf("status %d, %d cases, %+v", status, len(r.Cases), r.Total)
	}
}

// TestVerifyOfACheckoutCountsCases compares the committed files.
func TestVerifyOfACheckoutCountsCases(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	if out := works(t, "verify"); !strings.Contains(out, " compared, 0 failed, ") {
		t.Errorf("it prints\n%s", out)
	}
}
