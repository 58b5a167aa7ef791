//go:build linux

package attacks

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPageHasTheAttacks holds the page to the list: a row for each attack, in its order.
func TestPageHasTheAttacks(t *testing.T) {
	text, err := written.ReadFile(filepath.Join("..", "..", "..", "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") && name != "attack" {
			rows = append(rows, name)
		}
	}
	var names []string
	for _, a := range allAttacks() {
		names = append(names, a.name)
	}
	if !slices.Equal(rows, names) {
		t.Errorf("docs/testing.md has the attacks\n%q\nthere are\n%q\ngo run ./cmd/farfield-lab attacks -page docs/testing.md writes it", rows, names)
	}
}

func TestAttacksHaveFilesOfTheirOwn(t *testing.T) {
	files := map[string]string{}
	for _, a := range allAttacks() {
		if other, ok := files[a.fileName()]; ok {
			t.Errorf("%q and %q have the same file", a.name, other)
		}
		files[a.fileName()] = a.name
	}
}

// TestTriesAreDrawnFromTheirNumber makes a try again from seed, name and number.
func TestTriesAreDrawnFromTheirNumber(t *testing.T) {
	data := bytes.Repeat([]byte(`{"shape": [2, 40, 8]} `), 20)
	seen := map[string]bool{}
	for k := range 50 {
		a := mutateBytes(rand.New(newSource(1, "x", k)), data, "/escape")
		if b := mutateBytes(rand.New(newSource(1, "x", k)), data, "/escape"); !bytes.Equal(a, b) {
			t.Fatalf("try %d has two damages", k)
		}
		seen[string(a)] = true
	}
	if len(seen) < 40 {
		t.Errorf("%d different damages of 50", len(seen))
	}
	if seen[string(data)] {
		t.Log("one of them is none")
	}
}

func TestSealsHideDamage(t *testing.T) {
	framed := append(bytes.Repeat([]byte{7}, 40), make([]byte, 32)...)
	if a, b := sealSHA256(framed), sealSHA256(sealSHA256(framed)); !bytes.Equal(a, b) || bytes.Equal(a, framed) {
		t.Error("sealSHA256")
	}
	if a, b := sealCRC32C(framed), sealCRC32C(sealCRC32C(framed)); !bytes.Equal(a, b) || bytes.Equal(a, framed) {
		t.Error("sealCRC32C")
	}
}

// TestBadProgramsAreNoticed has programs that do each thing which none may.
func TestBadProgramsAreNoticed(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exit 0":                           "",
		"echo farfield: bad >&2; exit 2":   "",
		"exit 1":                           "without a word",
		"exit 7":                           "exits 7",
		"echo goroutine 1 >&2; exit 2":     "panics",
		"kill -SEGV $$":                    "ends by signal",
		"sleep 100":                        "hangs",
		`printf 'farfield: \033[2J\n' >&2`: "control byte 0x1b",
	} {
		t.Run(script, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "farfield")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Parallel() // a child that starts during a write keeps the file busy
			l := &lab{program: program, server: &server{}}
			try, err := l.newTrial(t.Context(), filepath.Join(t.TempDir(), "try"), nil)
			if err != nil {
				t.Fatal(err)
			}
			limit := slowLimit
			if want == "hangs" {
				limit = 200 * time.Millisecond
			}
			o, err := try.runChild(child{limit: limit}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := o.checkSane(); err != nil {
				got = err.Error()
			}
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("it is noticed that it %q, want %q", got, want)
			}
		})
	}
}

// TestWritesOutsideAreNoticed writes beside the box, into an input, and where a file
// points to.
func TestWritesOutsideAreNoticed(t *testing.T) {
	dir := t.TempDir()
	try, err := (&lab{}).newTrial(t.Context(), filepath.Join(dir, "try"), nil)
	if err != nil {
		t.Fatal(err)
	}
	in, escape := try.box("in"), filepath.Join(dir, "escape")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	before, err := digestTree(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := try.checkStrayFiles("x", in, before, escape, false); err != nil {
		t.Error(err)
	}
	for _, path := range []string{escape, filepath.Join(in, "more"), filepath.Join(dir, "try", "more"), try.box("more"), try.box("cwd", "more")} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := try.checkStrayFiles("x", in, before, escape, false); err == nil {
			t.Errorf("%s is not noticed", path)
		}
		os.Remove(path)
	}
}

// TestCampaignContinues runs an attack that fails now and then, in two parts.
func TestCampaignContinues(t *testing.T) {
	l := &lab{work: t.TempDir(), seed: 3, digest: "x"}
	if err := os.MkdirAll(filepath.Join(l.work, "records"), 0o755); err != nil {
		t.Fatal(err)
	}
	var made []int
	a := &attack{name: "none", tries: 9, try: func(t *trial) (int, error) {
		made = append(made, int(t.rand.Uint32()))
		if len(made)%4 == 0 {
			return 1, syscall.EIO
		}
		return 1, nil
	}}
	for _, tries := range []int{5, 9} {
		r, err := l.runAttack(context.Background(), a, tries, 1, io.Discard)
		if err != nil || r.Tries != tries || len(r.Failures) != tries/4 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if len(made) != 9 || len(slices.Compact(slices.Sorted(slices.Values(made)))) != 9 {
		t.Errorf("tries %v", made)
	}
}
